"""What was not run: printed cells that no measured row stands beside, and the command that would run them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mona_train.bench.published import DATASETS, FRAMEWORKS, TABLES, Published, published
from mona_train.bench.sections import Section

LISTED = 6  # missing cells that are named; more are counted


@dataclass(frozen=True)
class Gap:
    table: str
    measured: int
    printed: int
    missing: str  # in words
    command: str


def gaps(sections: Iterable[Section]) -> list[Gap]:
    """A line for each of the paper's tables that is not complete."""
    sections = list(sections)
    done = {e.published for s in sections for e in s.entries if e.published}
    # "Vanilla" of the ablations is a row of the frameworks: pre-training without fine-tuning.
    rows = [row for s in sections for row in s.rows if row.method in FRAMEWORKS]
    done |= {cell for cell in published() if cell.method in FRAMEWORKS and any(cell.fits(row) for row in rows)}
    full = {(cell.table, cell.name) for cell in done if cell.method == "unet-f"}  # the same at each ratio
    found = []
    for table in TABLES:
        cells = [cell for cell in published() if cell.table == table]
        left = [cell for cell in cells if cell not in done and (cell.table, cell.name) not in full]
        if left:
            measured = len(cells) - len(left)
            found.append(Gap(table, measured, len(cells), _words(left, measured), _command(table, left, measured)))
    return found


def _words(left: list[Published], measured: int) -> str:
    if not measured:
        return "nothing was run"
    names = [f"{cell.name} at {100 * cell.ratio:g} %" + _elsewhere(cell) for cell in left]
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _elsewhere(cell: Published) -> str:
    return "" if cell.dataset in ("acdc", cell.table) else f" on {DATASETS[cell.dataset]}"


def _command(table: str, left: list[Published], measured: int) -> str:
    """Finished rows are never run again, so the whole table may be asked for."""
    ratios = sorted({cell.ratio for cell in left})
    narrowed = f" --ratios {','.join(f'{r:g}' for r in ratios)}" if measured and len(ratios) < 3 else ""
    if methods := sorted({cell.method for cell in left} if {c.method for c in left} <= set(FRAMEWORKS) else set()):
        return f"mona bench frameworks --methods {','.join(methods)}{narrowed}"
    return f"mona bench {table}{narrowed}"
