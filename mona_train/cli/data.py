"""`mona data prepare | check | info | series`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from mona_infer.cli.main import OutputCommand
from mona_infer.errors import CheckFailed, InputError
from mona_train.config.presets import PRESETS

if TYPE_CHECKING:
    from mona_infer.cohort.spread import Map
    from mona_train.data.cache import Cache

app = typer.Typer(
    help="Prepare a data set, check it, or show what is in it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

NAME = typer.Argument(
    ..., metavar="NAME", help="A known data set (`mona train --dataset help` lists them), or the path of a folder."
)
SOURCE = typer.Argument(None, metavar="SRC", help="Folder of the data set. Default: $MONA_DATA/NAME, else ./data/NAME.")
OUT = typer.Option(None, help="Folder for the cache. Default: ./cache/NAME-SIZE.")
SIZE = typer.Option(
    None,
    metavar="N|HxW",
    help="192: long side of a slice that keeps its shape. 256x256: squeezed. Default: the preset's.",
)
PRESET = typer.Option(
    None, help=f"Prepare for `mona train --preset`: {', '.join(PRESETS)}. Default: the one for this machine."
)


@app.command(cls=OutputCommand)
def prepare(
    name: str = NAME,
    source: Path | None = SOURCE,
    out: Path | None = OUT,
    preset: str | None = PRESET,
    size: str | None = SIZE,
    cluster: str | None = typer.Option(
        None, metavar="WHERE", help="Spread the cases over workers: local:4, tcp://scheduler:8786 or slurm:16."
    ),
    slurm: list[str] = typer.Option(
        [], "--slurm", metavar="KEY=VALUE", help="What a Slurm job asks for, e.g. queue=short, walltime=02:00:00."
    ),
) -> None:
    """Turn a raw download into a cache of slices for `mona train`; an unchanged data set is not prepared twice."""
    spread = None
    if cluster is not None:
        from mona_infer.cohort.spread import spread_over

        spread = spread_over(cluster, slurm, "preparing")
    cache = prepared(name, source, out, size or _size_of(preset), spread=spread)
    rows, columns = cache.images.shape[1:]
    labelled = sum(case.first_label is not None for case in cache.cases)
    patients = len({case.patient for case in cache.cases})
    typer.echo(
        f"{cache.task.name}: {patients} patients, {len(cache.cases)} volumes ({labelled} with a label), "
        f"{len(cache.images)} slices of {'' if cache.task.squeezed else 'up to '}{rows}x{columns}; {cache.geometry}"
    )
    typer.echo(f"wrote {cache.folder}")


@app.command(cls=OutputCommand)
def check(
    name: str = NAME,
    source: Path | None = SOURCE,
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write the result as JSON."),
) -> None:
    """List every problem with a data set; exit code 1 if any of them is an error."""
    from mona_train.data.adapters import locate
    from mona_train.data.check import problems

    adapter, folder = locate(name, source)
    listed = list(problems(adapter, folder))
    errors = sum(problem.severity == "error" for problem in listed)
    if json_path:
        # the key of a message has been "words" from the start; scripts may read it
        rows = [{"severity": p.severity, "case": p.case, "file": p.file, "words": p.message} for p in listed]
        report = {"dataset": adapter.name, "folder": str(folder), "problems": rows}
        _write(json_path, json.dumps(report, indent=2, default=str) + "\n")
    if json_path != "-":
        for problem in listed:
            typer.echo(f"{problem.severity}: {problem.message}")
        typer.echo(f"{folder}: {errors} error(s), {len(listed) - errors} warning(s)")
    if errors:
        raise CheckFailed(f"{folder} has {errors} error(s)")


@app.command(cls=OutputCommand)
def info(
    name: str = NAME,
    source: Path | None = SOURCE,
    out: Path | None = OUT,
    preset: str | None = PRESET,
    size: str | None = SIZE,
    picture: Path | None = typer.Option(None, help="File for the class histogram. Default: CACHE-classes.png."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write the result as JSON."),
) -> None:
    """Show a summary of a data set and draw its class histogram; prepares the data set first if necessary."""
    from mona_infer.viewing.pictures import bars
    from mona_train.data.fingerprint import fingerprint

    say = sys.stderr if json_path == "-" else sys.stdout
    cache = prepared(name, source, out, size or _size_of(preset, say), say=say)
    facts = fingerprint(cache)
    shares = {c.name: facts["classes"][c.name] for c in cache.task.classes}
    where = picture or cache.folder.with_name(cache.folder.name + "-classes.png")
    bars(
        where, f"{cache.task.name}: share of labelled voxels", shares, [_visible(c.colour) for c in cache.task.classes]
    )
    if json_path:
        _write(json_path, json.dumps(facts, indent=2) + "\n")
    if json_path != "-":
        for key, value in facts.items():
            typer.echo(f"{key + ':':20} {_as_text(value)}")
        typer.echo(f"wrote {where}")


@app.command(cls=OutputCommand)
def series(
    folder: Path = typer.Argument(..., metavar="FOLDER", help="A DICOM folder, a zip of one, or a DICOM file."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write the result as JSON."),
) -> None:
    """List the series of a DICOM folder or zip, with the UID to give to `mona segment --series`."""
    from dataclasses import asdict

    from mona_infer.io.dicom.series import list_series
    from mona_infer.system.memory_budget import memory_budget

    found, notes = list_series(folder, memory_budget())
    if json_path:
        report = {"folder": str(folder), "series": [asdict(one) for one in found], "notes": notes}
        _write(json_path, json.dumps(report, indent=2) + "\n")
    if json_path == "-":
        return
    for one in found:
        slices = f"{one.slices} slice(s) of " if one.slices else ""
        frames = f", {one.frames} frames" if one.frames and one.frames > 1 else ""
        every = f" every {one.frame_interval_ms:.4g} ms" if one.frame_interval_ms else ""
        spacing = f", {' x '.join(f'{s:.4g}' for s in one.spacing)} mm" if one.spacing else ""
        typer.echo(f"{one.number or '-':>4}  {one.modality or '-':4} {one.description or '(no description)'}")
        typer.echo(f"      {slices}{one.columns} x {one.rows}{spacing}{frames}{every}; {one.files} file(s)")
        typer.echo(f"      UID {one.uid or '(none)'}")
        for note in ([f"cannot be read: {one.problem}"] if one.problem else []) + list(one.notes):
            typer.echo(f"      {note}")
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"{folder}: {len(found)} series")


def prepared(
    name: str,
    source: Path | None,
    out: Path | None = None,
    size: str | None = None,
    *,
    say: IO[str] | None = None,
    spread: Map | None = None,
) -> Cache:
    """The cache of a data set, made if it does not exist yet."""
    from mona_train.data.adapters import locate
    from mona_train.data.cache import default_folder
    from mona_train.data.prepare import prepare as make

    adapter, folder = locate(name, source)
    shape, pixels = _size(size) if size else (adapter.task(folder).size, 0)
    place = out or default_folder(adapter.name, folder, shape, pixels)
    if spread is not None:  # workers may have been started in another folder
        folder, place = folder.absolute(), place.absolute()
    return make(adapter, folder, place, shape, pixels=pixels, say=say, spread=spread)


def _size_of(preset: str | None, say: IO[str] | None = None) -> str:
    """The slice size of a preset; by default of the one that `mona train` uses on this machine."""
    from mona_train.config.default_preset import default_preset
    from mona_train.config.presets import preset as preset_of

    name = preset or default_preset()[0]
    config = preset_of(name, dataset="")
    rows, columns = config.size
    why = "" if preset else " (the default on this machine)"
    slices = f"slices with a long side of about {config.pixels}" if config.pixels else f"slices of {rows}x{columns}"
    typer.echo(f"preset {name}{why}: {slices}", file=say)
    return str(config.pixels or f"{rows}x{columns}")


def _size(text: str) -> tuple[tuple[int, int], int]:
    """The size that slices are squeezed to; or the long side of those that keep their shape (else 0)."""
    rows, x, columns = text.lower().partition("x")
    sides = (rows, columns) if x else (rows,)
    if not all(side.isdigit() and 16 <= int(side) <= 4096 for side in sides):
        raise InputError(f"--size must look like 192 or 256x256, and be from 16 to 4096; found {text!r}")
    return ((int(rows), int(columns)), 0) if x else ((int(rows), int(rows)), int(rows))


def _write(where: str, text: str) -> None:
    from mona_infer.io.atomic import write_text

    if where == "-":
        typer.echo(text, nl=False)
    else:
        write_text(Path(where), text)


def _visible(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Grey instead of the background's black, which would dominate a chart on white."""
    return (150, 150, 150) if sum(colour) == 0 else colour


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {100 * v:.3g} %" if isinstance(v, float) else f"{k} {v}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
