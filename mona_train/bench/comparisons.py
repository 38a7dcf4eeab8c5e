"""MONA against labels alone, mixing alone and the best rival: the difference, its interval and a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mona_train.bench.entries import Entry
from mona_train.bench.published import ALL_LABELS
from mona_train.bench.sections import Section
from mona_train.bench.statistics import Difference, paired_bootstrap

LABELS_ALONE = "unet-l"
SUBJECT = "mona"
WORDS = {
    "better": "is better than",
    "worse": "is worse than",
    "not distinguishable": "is not distinguishable from",
    "one patient": "cannot be compared (one patient) with",
}


@dataclass(frozen=True)
class Comparison:
    role: str  # what the other one is: "labels alone", ...
    ours: Entry
    theirs: Entry
    difference: Difference

    @property
    def sentence(self) -> str:
        d = self.difference
        other = self.theirs.label if self.role == self.theirs.label else f"{self.role} ({self.theirs.label})"
        interval = f", 95 % interval {signed(d.low)} to {signed(d.high)} over {d.patients} patients"
        numbers = f"{signed(d.mean)} DSC" + (interval if d.patients > 1 else "")
        return f"{self.ours.label} {WORDS[d.verdict]} {other}: {numbers}{self.seeds}."

    @property
    def seeds(self) -> str:
        """What the interval leaves out: that another seed gives another network."""
        ours, theirs = self.ours.dscs, self.theirs.dscs
        if min(len(ours), len(theirs)) < 2:
            return "; one seed each" if len(ours) == len(theirs) else f"; {len(ours)} and {len(theirs)} seeds"
        if self.difference.verdict in ("better", "worse") and min(ours) <= max(theirs) and min(theirs) <= max(ours):
            return "; but the seeds of both overlap"
        return ""


def comparisons(section: Section, ratio: float | None) -> tuple[list[Comparison], list[str]]:
    """At one ratio, and what could not be compared, in words."""
    entries = section.at(ratio)
    ours = subject(entries)
    if ours is None:
        return [], []
    wanted, notes = [], []
    if alone := _best(e for e in entries if e.method == LABELS_ALONE):
        wanted.append(("labels alone", alone))
    elif any(e.method != SUBJECT for e in entries):  # else a table of MONA's own parts
        notes.append("Labels alone (unet-l) were not measured here.")
    if not ours.first.principles:
        notes.append(f"{ours.label} has no principle switched on here, so it is mixing alone.")
        if bcp := _best(e for e in entries if e.method == "bcp"):
            wanted.append(("mixing as published", bcp))
    elif mixing := _best(e for e in entries if e.method == SUBJECT and not e.first.principles):
        wanted.append(("mixing alone", mixing))
    else:
        notes.append("Mixing alone (`--principles ''`) was not measured here.")
    if rival := _best(e for e in entries if e.method not in (SUBJECT, LABELS_ALONE, ALL_LABELS)):
        known = [role for role, theirs in wanted if theirs is rival]
        wanted = [w for w in wanted if w[1] is not rival] + [(", ".join(["the best rival", *known]), rival)]
    found = []
    for role, theirs in wanted:
        difference = compare(ours, theirs)
        if difference is None:
            notes.append(f"{ours.label} and {theirs.label} were not measured on the same cases one by one.")
        else:
            found.append(Comparison(role, ours, theirs, difference))
    return found, notes


def compare(ours: Entry, theirs: Entry) -> Difference | None:
    """None where the two do not have the scores of the same cases."""
    if not ours.case_dsc or ours.case_dsc.keys() != theirs.case_dsc.keys():
        return None
    return paired_bootstrap(ours.case_dsc, theirs.case_dsc, ours.first.patients())


def subject(entries: list[Entry]) -> Entry | None:
    """The row that stands for MONA: as the preset has it, with all principles where the rows differ in them."""
    found = [e for e in entries if e.method == SUBJECT]
    return min(found, key=lambda e: (len(e.first.settings), -len(e.first.principles)), default=None)


def baseline(section: Section, entries: list[Entry]) -> Entry | None:
    """What the others are drawn against: labels alone, or a table's own plain row."""
    if section.table == "augmentation":
        return next((e for e in entries if (e.first.student, e.first.teacher) == ("weak", "weak")), None)
    if alone := _best(e for e in entries if e.method == LABELS_ALONE):
        return alone
    plain = [e for e in entries if not e.first.principles and e is not subject(entries)]
    return plain[-1] if plain else entries[-1]


def signed(value: float) -> str:
    """With a sign, a true minus, and no -0.000."""
    text = f"{value:+.3f}"
    return "0.000" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def _best(entries: Iterable[Entry]) -> Entry | None:
    return max(entries, key=lambda e: e.dsc, default=None)
