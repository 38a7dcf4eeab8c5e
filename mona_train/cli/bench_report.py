"""`mona bench report`: what was measured beside what was published, as tables, or as pages with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mona_infer.errors import InputError

if TYPE_CHECKING:
    from mona_train.bench.sections import Section


def report(
    results: Path = typer.Argument(
        Path("bench"), metavar="[RESULTS]", help="results.jsonl of `mona bench`, or the folder that holds it."
    ),
    out: Path | None = typer.Option(
        None, metavar="FOLDER", help="Write pages with pictures and tables into this folder, e.g. docs/results."
    ),
    format_: str | None = typer.Option(
        None, "--format", help="Print console, md, csv or latex (booktabs). Default: console, or nothing with --out."
    ),
    runs: Path | None = typer.Option(
        None,
        metavar="FOLDER",
        help="With --out: the folder of the runs, to draw what they answer on three scans.",
    ),
    any_code: bool = typer.Option(
        False, "--any-code", help="Put rows that different code measured into one table, told apart in a column."
    ),
) -> None:
    """Show measured rows beside the paper's numbers: means and spread over seeds, and whether MONA is better or lucky.

    Rows of different presets, data or code are never in one table unless --any-code asks for it.
    """
    from mona_infer.system.optional_parts import require
    from mona_train.bench.report import FORMATS, as_text, load
    from mona_train.bench.report import report as write

    kind = format_ or ("" if out else "console")
    if format_ and kind not in FORMATS:
        raise InputError(f"unknown --format {format_!r}; choose one of {', '.join(FORMATS)}")
    if runs is not None and out is None:
        raise InputError("--runs draws pictures, which need a place: add --out FOLDER")
    if out is not None:
        require("bench report --out", "matplotlib", extra="bench")
    made, notes = load(results, any_code=any_code)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if not made and kind:
        raise InputError(f"{results} has no finished row yet; `mona bench` adds one for each that ends")
    if kind == "console":
        _print(made)
    elif kind:
        typer.echo(as_text(made, kind), nl=False)
    if out is not None:
        written = write(made, out, runs=runs, say=lambda words: typer.echo(words, err=True))
        typer.echo(f"wrote {written[0]} and {len(written) - 1} files beside it", err=bool(kind))


def _print(made: list[Section]) -> None:
    from rich.console import Console

    from mona_train.bench.comparisons import comparisons
    from mona_train.bench.formats import print_table
    from mona_train.bench.table import table_of

    console = Console(highlight=False)
    for section in made:
        for ratio in section.ratios():
            print_table(table_of(section, ratio), console)
            found, notes = comparisons(section, ratio)
            for sentence in [*(c.sentence for c in found), *notes]:
                console.print(sentence, markup=False)
            console.print()
