"""`mona label next DATASET`: which patients to label next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mona_infer.cli.examples import shown
from mona_infer.cli.main import CommandGroup, OutputCommand

if TYPE_CHECKING:
    from mona_train.labelling.advice import Advice

app = typer.Typer(
    cls=CommandGroup,
    help="Advise which patients to label next, and why.",
    epilog=shown("label"),
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


@app.callback()  # without it, typer makes a single command of this group
def label() -> None: ...


@app.command("next", cls=OutputCommand)
def next_(
    dataset: str = typer.Argument(..., metavar="DATASET", help="As for `mona train --dataset`: a name or a folder."),
    data: Path | None = typer.Option(None, help="Folder of the data set. Default: $MONA_DATA/NAME, else ./data/NAME."),
    run: Path | None = typer.Option(
        None, help="Ask this run's network. Default: the newest finished one in runs/ that learned from this data."
    ),
    count: int = typer.Option(5, min=1, help="How many patients to name."),
    serve: bool = typer.Option(False, "--serve", help="Let `mona serve DATASET` show its cases in this order."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """List the patients to label next, the most useful first, and why.

    A patient comes first if many others are like it that the network is unsure about, and that are unlike all labelled
    patients and those higher up in the list.
    """
    from mona_infer.io.atomic import write_text
    from mona_infer.serving.advised import FILE
    from mona_infer.serving.state import default_state
    from mona_train.data.adapters import locate
    from mona_train.labelling.advice import advise
    from mona_train.labelling.runs import newest_run_of

    adapter, folder = locate(dataset, data)
    found = advise(run or newest_run_of(adapter, folder), adapter, folder, count)
    text = json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n"
    if json_path == "-":
        typer.echo(text, nl=False)
    else:
        _print(found)
    written = [Path(json_path)] if json_path and json_path != "-" else []
    if serve:
        written.append(default_state(folder) / FILE)
    for path in written:
        write_text(path, text)
    if written and json_path != "-":
        typer.echo(f"wrote {', '.join(map(str, written))}")


def _print(found: Advice) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)  # a name may hold brackets
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for title in ("", "patient", "scans", "why"):
        table.add_column(title, overflow="fold", justify="right" if not title else "left")
    for one in found.patients:
        table.add_row(str(one.rank), one.patient, "\n".join(one.scans), one.reason)
    console.print(table)
    if found.hidden:
        console.print("Every patient has a label; these are among those whose labels the run did not use.")
    console.print(
        f"{found.labelled} patient(s) labelled, {found.candidates} not; asked the network of {found.run} "
        f"(step {found.step})."
    )
    console.print("Next: label all scans of these patients (`mona serve` draws them), then run `mona train` again.")
