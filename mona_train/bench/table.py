"""The table of a section: ours beside the published numbers, one line for each setting, with its budget in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import stdev

from mona_train.bench.comparisons import compare, subject
from mona_train.bench.entries import Entry
from mona_train.bench.sections import Section, shared_settings

UNKNOWN = "unknown"  # the code of a run that did not record it
Value = str | float | int | None


@dataclass(frozen=True)
class Column:
    key: str  # in CSV
    title: str  # empty: in CSV alone
    show: Callable[[float], str] = str  # a number as it is printed
    best: bool = False  # the highest of those with few labels is set in bold

    def text(self, value: Value) -> str:
        if value is None:
            return "-"
        return value if isinstance(value, str) else self.show(value)


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Value], ...]
    notes: tuple[str, ...] = ()
    facts: dict[str, Value] = field(default_factory=dict)  # the same for each row: columns in CSV, words elsewhere

    def shown(self) -> tuple[Column, ...]:
        """For people: without the columns that have no number."""
        return tuple(c for c in self.columns if c.title and any(row.get(c.key) is not None for row in self.rows))

    def bold(self, row: dict[str, Value], column: Column) -> bool:
        rivals = [r for r in self.rows if "every_label" not in r]
        values = [v for r in rivals if isinstance(v := r.get(column.key), float)]
        return column.best and row in rivals and len(values) > 1 and row.get(column.key) == max(values)


def _dsc(value: float) -> str:
    return f"{value:.3f}"


def _minutes(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _distance(value: float) -> str:
    return f"{value:.2f}"


COLUMNS = (
    Column("method", "Method"),
    Column("seeds", "Seeds", lambda n: f"{n:.0f}"),
    Column("dsc", "DSC", _dsc, best=True),
    Column("dsc_spread", "Spread of seeds", _dsc),
    Column("dsc_lowest", ""),
    Column("dsc_highest", ""),
    Column("dsc_sd", ""),
    Column("dsc_last", "DSC, last step", _dsc),
    Column("dsc_test", "DSC, test", _dsc, best=True),
    Column("dsc_paper_rules", "DSC, paper's rules", _dsc),
    Column("dsc_published", "DSC, published", _dsc, best=True),
    Column("asd_mm", "ASD, mm", _distance),
    Column("asd_paper_rules", "ASD, paper's rules", _distance),
    Column("asd_published", "ASD, published", _distance),
    Column("minutes", "Minutes", _minutes),
    Column("core_minutes", "Core-minutes", _minutes),
    Column("mona_minus_this", ""),  # the paired difference of DSC, as in the sentences of `comparisons`
    Column("mona_minus_this_low", ""),
    Column("mona_minus_this_high", ""),
    Column("mona_is", ""),
    Column("code", "Code"),
)


def table_of(section: Section, ratio: float | None) -> Table:
    entries = section.at(ratio)
    several = len({row.code for e in entries for row in e.rows}) > 1
    ours = subject(entries)
    rows = tuple(_row(e, several_codes=several) | _beside(ours, e) for e in entries)
    facts: dict[str, Value] = {
        "table": section.table,
        "dataset": section.dataset,
        "ratio": ratio,
        "preset": section.preset,
        "steps": section.steps,
        "part": section.part,
    }
    return Table(f"{section.title}, {share(ratio)}", COLUMNS, rows, tuple(budget(section, entries)), facts)


def share(ratio: float | None) -> str:
    return "all labels" if ratio is None else f"{100 * ratio:g} % of the labels"


def budget(section: Section, entries: list[Entry]) -> list[str]:
    """What the numbers cost and where they are from, in sentences."""
    rows = [row for e in entries for row in e.rows]
    minutes = sorted(row.seconds / 60 for row in rows if row.seconds)
    hardware = sorted({f"{row.hardware or 'unknown hardware'}{_threads(row.threads)}" for row in rows})
    precision = sorted({row.precision for row in rows if row.precision})
    cases, patients = len(entries[0].case_dsc), len(set(entries[0].first.patients().values()))
    chosen = "of the network with the best validation" if section.part == "validation" else "of the chosen network"
    said = [
        f"Preset {section.preset}: {section.steps:,} steps in all, {_from_to(minutes)} minutes a row "
        f"on {_listed(hardware)}" + (f", {_listed(precision)}." if precision else "."),
        f"DSC and ASD are means over classes and the {section.part} volumes {chosen}"
        + (f": {_count(cases, 'volume')} of {_count(patients, 'patient')}." if cases else "."),
    ]
    versions = sorted({row.version for row in rows if row.version})
    commits = sorted({row.commit[:7] for row in rows if row.commit})
    if section.code == UNKNOWN:
        said.append("The code that trained these rows was not recorded; it may differ from row to row.")
    elif section.code:
        same = f", commits {_listed(commits)} with the same training code" if len(commits) > 1 else ""
        one = f", commit {commits[0]}" if len(commits) == 1 else ""
        said.append(f"mona {_listed(versions)}{one}{same}, code {section.code[:7]}.")
    elif len({row.code for row in rows}) > 1:
        said.append("ROWS OF DIFFERENT CODE ARE MIXED HERE on request: the column Code tells them apart.")
    if settings := shared_settings(rows):
        said.append(f"Changed from the preset: {', '.join(settings)}.")
    return said


def _row(entry: Entry, *, several_codes: bool) -> dict[str, Value]:
    lowest, highest, cell, several = min(entry.dscs), max(entry.dscs), entry.published, len(entry.rows) > 1
    return {
        **({"every_label": 1} if entry.every_label else {}),
        "method": f"{entry.label} (all labels)" if entry.every_label else entry.label,
        "seeds": len(entry.rows),
        "dsc": entry.dsc,
        "dsc_spread": highest - lowest if several else None,
        "dsc_lowest": lowest,
        "dsc_highest": highest,
        "dsc_sd": stdev(entry.dscs) if several else None,
        "dsc_last": entry.last,
        "dsc_test": entry.test,
        "dsc_paper_rules": entry.legacy("dsc"),
        "dsc_published": cell.dsc if cell else None,
        "asd_mm": entry.asd,
        "asd_paper_rules": entry.legacy("asd"),
        "asd_published": cell.asd if cell else None,
        "minutes": entry.minutes,
        "core_minutes": entry.core_minutes,
        "code": entry.first.code[:7] if several_codes else None,
    }


def _beside(ours: Entry | None, entry: Entry) -> dict[str, Value]:
    """MONA's paired difference from a row, with its interval; nothing for MONA itself."""
    difference = compare(ours, entry) if ours is not None and entry is not ours else None
    if difference is None:
        return {}
    found: dict[str, Value] = {"mona_minus_this": difference.mean, "mona_is": difference.verdict}
    if difference.patients > 1:
        found |= {"mona_minus_this_low": difference.low, "mona_minus_this_high": difference.high}
    return found


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _threads(n: int) -> str:
    return f" ({_count(n, 'thread')})" if n else ""


def _from_to(values: list[float]) -> str:
    if not values:
        return "an unknown number of"
    low, high = f"{values[0]:.0f}", f"{values[-1]:.0f}"
    return low if low == high else f"{low} to {high}"


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else "?"
