"""The results as pages for the documentation: pictures first, what they say, the tables, what was not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mona_train.bench.comparisons import Comparison, comparisons, signed, subject
from mona_train.bench.formats import markdown
from mona_train.bench.gaps import gaps
from mona_train.bench.sections import Section
from mona_train.bench.statistics import DRAWS
from mona_train.bench.table import share, table_of

WRITTEN = "<!-- Written by `mona bench report`: run it again instead of editing this page. -->\n"
READING = f"""\
## How to read this

- **Published numbers** are the paper's: 256x256 slices, 60,000 steps on a GPU. The rows here had the budget that is
  named with them, so compare the order of the methods and the gaps between them, not the digits.
- **DSC** and **ASD** are under mona's own definition: millimetres, and a missed organ counts as missed. Columns with
  *paper's rules* are the same masks under the published code's rules (`mona evaluate --definition paper`): distances in
  voxels, an empty mask at distance 0. Those are the ones to hold against the published ASD.
- **Best and last.** The network is chosen by its validation DSC, on the very patients of the table, which flatters
  every row. *Last step* is the network at the end, which nobody chose.
- **Better, worse, not distinguishable.** The 95 % interval of the mean difference, from {DRAWS:,} draws of patients
  with replacement: both methods on the same patients, all frames of a patient together. It says whether other patients
  would tell the same story. It does not know that another seed gives another network: for that, look at the range over
  seeds. The best rival is chosen by the same patients, which favours the rival.
"""


@dataclass(frozen=True)
class Pictures:
    """File names of what was drawn of a section; absent where there was nothing to draw."""

    by_ratio: str | None = None
    of: dict[float | None, dict[str, str]] = field(default_factory=dict)  # ratio -> kind -> file
    licence: str = ""  # of the slices that panels show


ALT = {
    "forest": "Difference of every method from labels alone, with intervals",
    "ranks": "Order of the methods in the paper and here",
    "minutes": "DSC of every method against its minutes of training",
    "classes": "DSC of each class",
    "curves": "Validation DSC while training",
    "panels": "Slices with the answers of several methods and the reference",
}


def slug(section: Section, sections: Sequence[Section]) -> str:
    """Of the section's page; with the code or the data where several sections would have the same."""
    same = [s for s in sections if s.name == section.name]
    parts = [section.table, *([] if section.dataset == section.table else [section.dataset]), section.preset]
    parts += [] if section.usual else [f"{section.steps}-steps"]
    parts += [section.code[:7]] if len({s.code for s in same}) > 1 else []
    parts += [section.content[:7]] if len({s.content for s in same}) > 1 else []
    return "-".join("".join(c if c.isalnum() else "-" for c in part) for part in parts).lower()


def headline(section: Section) -> float | None:
    """The ratio that the front page shows: the one with the most entries, of equals the paper's 5 %."""
    return max(section.ratios(), key=lambda r: (len(section.at(r)), r == 0.05))


def current(sections: Sequence[Section]) -> list[Section]:
    """Without what older code measured; the newest comes first."""
    seen: set[tuple[str, str, str, int]] = set()
    found = []
    for section in sections:
        if section.name not in seen:
            found.append(section)
        seen.add(section.name)
    return found


def index(sections: Sequence[Section], drawn: Sequence[Pictures]) -> str:
    """The front page."""
    newest = current(sections)
    parts = [WRITTEN, "# Benchmark\n"]
    if not sections:
        parts.append("Nothing has been measured yet.\n")
    for section, pictures in zip(sections, drawn, strict=True):
        if section in newest:
            parts += _front(section, pictures, slug(section, sections))
    if rows := [(s, r, c) for s in newest for r in s.ratios() for c in comparisons(s, r)[0]]:
        parts += ["## Better, or lucky?\n", _verdicts(rows)]
    if older := [s for s in sections if s not in newest]:
        links = [f"- [{s.title}, code {s.code[:7]}]({slug(s, sections)}.md)\n" for s in older]
        parts += ["## Measured with other code\n", "Never mixed with the tables above.\n\n" + "".join(links)]
    parts += ["## What was not run\n", _not_run(newest), READING]
    if sections:
        parts.append("All numbers: [results.csv](results.csv), [tables.tex](tables.tex) (booktabs).\n")
        names = "".join(f"{slug(s, sections)}\n" for s in sections)
        parts.append(f"```{{toctree}}\n:hidden:\n{names}```\n")
    return "\n".join(parts)


def section_page(section: Section, pictures: Pictures, sections: Sequence[Section]) -> str:
    """Everything about one section."""
    if section in current(sections):
        parts = [WRITTEN, f"# {section.title}\n"]
    else:
        parts = [WRITTEN, f"# {section.title}, code {section.code[:7]}\n"]
        parts.append("Measured with other code or data than the newest rows; the two should not be compared.\n")
    if pictures.by_ratio:
        parts.append(f"![DSC against the share of labels]({pictures.by_ratio})\n")
    for ratio in section.ratios():
        table, (found, notes) = table_of(section, ratio), comparisons(section, ratio)
        files = pictures.of.get(ratio, {})
        parts.append(f"## {share(ratio).capitalize()}\n")
        parts += [f"![{ALT[kind]}]({files[kind]})\n" for kind in ("forest", "ranks") if kind in files]
        said = [c.sentence for c in found] + notes
        parts += ["".join(f"- {sentence}\n" for sentence in said)] if said else []
        parts += [markdown(table), " ".join(table.notes) + "\n"]
        parts += [f"![{ALT[kind]}]({files[kind]})\n" for kind in ("minutes", "classes", "curves") if kind in files]
        if "panels" in files:
            parts.append(f"![{ALT['panels']}]({files['panels']})\n\n*{pictures.licence}*\n")
    return "\n".join(parts)


def _front(section: Section, pictures: Pictures, page: str) -> list[str]:
    ratio = headline(section)
    found, notes = comparisons(section, ratio)
    files = pictures.of.get(ratio, {})
    parts = [f"## {section.title}\n"]
    parts += [f"![{ALT['forest']}]({files['forest']})\n"] if "forest" in files else []
    said = "".join(f"- {sentence}\n" for sentence in [*(c.sentence for c in found), *notes])
    parts += [_reached(section, ratio) + "\n", *([said] if said else [])]
    if "panels" in files:
        parts.append(f"![{ALT['panels']}]({files['panels']})\n\n*{pictures.licence}*\n")
    elif "minutes" in files:
        parts.append(f"![{ALT['minutes']}]({files['minutes']})\n")
    budget = table_of(section, ratio).notes[0]
    return [*parts, f"{budget} [Tables, ranks, classes and curves]({page}.md)\n"]


def _reached(section: Section, ratio: float | None) -> str:
    """The first sentence: what MONA, or else the best row, reaches."""
    entries = section.at(ratio)
    ours = subject(entries) or entries[0]
    best = next(e for e in entries if not e.every_label) if any(not e.every_label for e in entries) else entries[0]
    seeds = f" (mean of {len(ours.rows)} seeds)" if len(ours.rows) > 1 else " (one seed)"
    said = f"With {share(ratio)}, {ours.label} reaches a {section.part} DSC of **{ours.dsc:.3f}**{seeds}"
    if best is not ours:
        said += f"; the best row is {best.label} with {best.dsc:.3f}"
    if full := [e for e in entries if e.every_label]:
        said += f"; {full[0].label} with all labels {full[0].dsc:.3f}"
    return said + "."


def _verdicts(rows: Sequence[tuple[Section, float | None, Comparison]]) -> str:
    lines = ["| | | against | difference in DSC | 95 % interval | |", "|---|---|---|---:|---:|---|"]
    for section, ratio, c in rows:
        d = c.difference
        interval = f"{signed(d.low)} to {signed(d.high)}" if d.patients > 1 else "-"
        other = f"{c.role} ({c.theirs.label})"
        cells = section.title, share(ratio), other, signed(d.mean), interval, f"**{d.verdict}**{c.seeds}"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _not_run(sections: Sequence[Section]) -> str:
    lines = ["| table | measured | missing | command |", "|---|---:|---|---|"]
    for gap in gaps(sections):
        lines.append(f"| {gap.table} | {gap.measured} of {gap.printed} | {gap.missing} | `{gap.command}` |")
    said = "The paper's tables, and how many of their cells a row above stands beside.\n\n" + "\n".join(lines) + "\n"
    if not any(section.preset == "paper" for section in sections):
        said += "\nThe paper's own setting (256x256, 60,000 steps) needs a GPU: `mona bench acdc --preset paper`.\n"
    return said
