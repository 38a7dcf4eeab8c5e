"""From a results file to tables in the terminal, or to a folder of pages, pictures and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.atomic import check_writable, write_text
from mona_train.bench.comparisons import comparisons
from mona_train.bench.formats import as_csv, latex, markdown
from mona_train.bench.page import Pictures, index, section_page, slug
from mona_train.bench.reading import read_results
from mona_train.bench.sections import Section, sections
from mona_train.bench.table import Table, table_of

FORMATS = ("console", "md", "csv", "latex")


def load(results: Path, *, any_code: bool = False) -> tuple[list[Section], list[str]]:
    """The sections of a results file, and notes about it."""
    rows, notes = read_results(results)
    made = sections(rows, any_code=any_code)
    if len({s.name for s in made}) < len(made):
        notes.append("rows of different code or data are in tables of their own; --any-code puts them into one, marked")
    return made, notes


def tables(made: Sequence[Section]) -> list[Table]:
    return [table_of(section, ratio) for section in made for ratio in section.ratios()]


def as_text(made: Sequence[Section], kind: str) -> str:
    """Markdown, CSV or LaTeX of all tables."""
    if kind == "csv":
        return as_csv(tables(made))
    parts = []
    for section in made:
        for ratio in section.ratios():
            table, (found, notes) = table_of(section, ratio), comparisons(section, ratio)
            if kind == "latex":
                parts.append(latex(table, [c.sentence for c in found]))
                continue
            said = "".join(f"- {sentence}\n" for sentence in [*(c.sentence for c in found), *notes])
            parts += [f"## {table.title}\n", markdown(table), *([said] if said else []), " ".join(table.notes) + "\n"]
    return "\n".join(parts)


def report(
    made: Sequence[Section], out: Path, *, runs: Path | None = None, say: Callable[[str], None] | None = None
) -> list[Path]:
    """Write index.md, a page for each section, results.csv, tables.tex and the pictures; returns what was written."""
    if runs is not None and not runs.is_dir():
        raise InputError(f"{runs} is not a folder; give the one that holds the run folders, e.g. bench/rows")
    check_writable(out, folder=True)
    drawn = []
    for section in made:
        if say:
            say(f"drawing {section.title}")
        drawn.append(_draw(section, slug(section, made), out, runs))
    texts = {f"{slug(s, made)}.md": section_page(s, pictures, made) for s, pictures in zip(made, drawn, strict=True)}
    texts |= {"results.csv": as_text(made, "csv"), "tables.tex": as_text(made, "latex")} if made else {}
    texts["index.md"] = index(made, drawn)  # last: what it links to is there
    for name, text in texts.items():
        write_text(out / name, text)
    pictures = [name for p in drawn for files in p.of.values() for name in files.values()]
    return [out / name for name in [*reversed(texts), *pictures, *(p.by_ratio for p in drawn if p.by_ratio)]]


def _draw(section: Section, name: str, out: Path, runs: Path | None) -> Pictures:
    from mona_train.bench.panels import draw_panels, licence
    from mona_train.bench.plots.classes import draw_classes
    from mona_train.bench.plots.curves import draw_by_ratio, draw_curves
    from mona_train.bench.plots.forest import draw_forest, forest
    from mona_train.bench.plots.minutes import draw_minutes
    from mona_train.bench.plots.ranks import draw_ranks, rank_pairs

    of: dict[float | None, dict[str, str]] = {}
    for ratio in section.ratios():
        start = name if ratio is None else f"{name}-{f'{100 * ratio:g}'.replace('.', '_')}pc"
        files = {kind: f"{start}-{kind}.svg" for kind in ("forest", "ranks", "minutes", "classes", "curves")}
        files["panels"] = f"{start}-panels.png"
        kept = {"classes"}
        draw_classes(section, ratio, out / files["classes"])
        if data := forest(section, ratio):
            draw_forest(data, section, ratio, out / files["forest"])
            kept.add("forest")
        if pairs := rank_pairs(section, ratio):
            draw_ranks(pairs, section, ratio, out / files["ranks"])
            kept.add("ranks")
        if draw_minutes(section, ratio, out / files["minutes"]):
            kept.add("minutes")
        if draw_curves(section, ratio, out / files["curves"]):
            kept.add("curves")
        if runs is not None and draw_panels(section, ratio, runs, out / files["panels"]):
            kept.add("panels")
        of[ratio] = {kind: file for kind, file in files.items() if kind in kept}
    by_ratio = f"{name}-labels.svg" if draw_by_ratio(section, out / f"{name}-labels.svg") else None
    panels = any("panels" in files for files in of.values())
    return Pictures(by_ratio, of, licence(section.dataset) if panels else "")
