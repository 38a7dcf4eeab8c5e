"""`mona segment SCAN --out MASK`: a scan or a folder of scans, a model, and masks that lie exactly on the scans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.engines.base import AUTO, engines
from mona_infer.errors import CheckFailed, InputError, MonaError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mona_infer.models.file import Model
    from mona_infer.segmenter import Segmenter
    from mona_infer.segmenting.jobs import Job
    from mona_infer.segmenting.report import CaseReport


def segment(
    scan: Path = typer.Argument(
        ..., metavar="SCAN", help="A NIfTI, NRRD or MetaImage file, a DICOM folder or zip, or a folder of these."
    ),
    out: Path = typer.Option(
        ...,
        metavar="MASK",
        help="The mask: .nii.gz, .nii, .nrrd or .seg.nrrd; for DICOM also .dcm; for a folder of scans, a folder.",
    ),
    model: Path | None = typer.Option(
        None,
        help="A file, a run's folder, or a name of `mona models`. Default: $MONA_MODEL, else the newest export under "
        "runs/, else the model that comes with mona for this kind of scan.",
    ),
    format: str | None = typer.Option(
        None, metavar="SUFFIX", help="For a folder: nii.gz (default), nii, nrrd, seg.nrrd or dcm (DICOM-SEG)."
    ),
    engine: str = typer.Option(AUTO, help=f"{', '.join([AUTO, *engines()])}."),
    reference: Path | None = typer.Option(None, help="Measure DSC and ASD against this mask (or folder of masks)."),
    largest: bool = typer.Option(False, "--keep-largest", help="Keep only the largest connected piece of each class."),
    tta: bool = typer.Option(False, "--tta", help="Average over mirror images: a little better, four times the work."),
    probabilities: Path | None = typer.Option(None, metavar="FOLDER", help="Write a probability map for each class."),
    stats: Path | None = typer.Option(None, metavar="FILE", help="Write volumes, areas and confidence as JSON."),
    preview: Path | None = typer.Option(None, metavar="PNG", help="Draw slices with the mask over them."),
    page: Path | None = typer.Option(
        None, metavar="HTML", help="A page to look at in a browser; for a folder, one of all cases and one of each."
    ),
    keep_names: bool = typer.Option(False, "--keep-names", help="Also show the folders of the files on the pages."),
    frame: str | None = typer.Option(None, metavar="N|all", help="Frame of a 4-D scan or cine, from 0; or all."),
    series: str | None = typer.Option(None, help="Which series of a DICOM folder: number, description or UID."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace masks that already exist."),
    force: bool = typer.Option(
        False, "--force", help="Also segment scans that are clearly not the kind the model is for."
    ),
    threads: int = typer.Option(0, min=0, metavar="N", help="Threads for the network. Default: all cores."),
    batch: int | None = typer.Option(None, min=1, metavar="N", help="Slices at a time. Default: the engine's best."),
    max_ram: str | None = typer.Option(None, metavar="SIZE", help="Use at most this much memory, such as 2GB."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Segment a scan, or every scan in a folder, with an exported model.

    In a folder, one bad case never stops the rest (the exit code is then 1), and cases that already have a mask are
    skipped.
    """
    sealed_later = _read_model(model)
    from mona_infer.segmenting.jobs import clear_left_behind, find_jobs
    from mona_infer.segmenting.outputs import Options
    from mona_infer.segmenting.pipeline import run
    from mona_infer.system.memory_budget import parse_size

    _check_options(stats, preview, page, frame)
    ram = parse_size(max_ram) if max_ram else 0
    jobs, folder = find_jobs(scan, out, reference, format)
    if page is not None:
        from mona_infer.cli.pages import with_pages

        jobs = with_pages(jobs, page, folder=folder)
    todo = [job for job in jobs if overwrite or not job.out.exists()]
    if not todo and not folder:
        raise InputError(f"{out} exists already; --overwrite replaces it")
    json_file = Path(json_path) if json_path and json_path != "-" else None
    _check_outputs(jobs, [stats, preview, page, json_file], [out if folder else None, probabilities])
    quiet = json_path == "-"
    sealed = sealed_later.result() or _model_of(jobs[0].scan, series, quiet=quiet)
    if sealed.card is not None:
        typer.echo(sealed.card.describe(), err=quiet)
    setup = _Setup(sealed, engine, quiet, tta=tta, largest=largest, batch=batch, threads=threads, max_ram=ram)
    options = Options(
        frame=None if frame in (None, "all") else int(frame or 0),
        every_frame=frame == "all",
        series=series,
        force=force,
        probabilities=probabilities,
        details=stats is not None or json_path is not None or page is not None,
        pictures=preview is not None,
        keep_names=keep_names,
    )
    clear_left_behind(jobs)
    cases, pictures = [], []
    for case, rows in run(todo, sealed, options, setup.segmenter, folder=folder, max_ram=ram) if todo else ():
        cases.append(case)
        pictures += rows
        _print_case(case, quiet=quiet)
    failed = [case.case for case in cases if case.error is not None]
    done, kept = len(cases) - len(failed), [job.name for job in jobs if job not in todo]
    report: dict[str, Any] = {
        "model": {"path": str(sealed.path), "sha256": sealed.seal} | _bundled(sealed),
        "engine": setup.description or None,
    }
    report |= {"cases": [case.to_json() for case in cases], "kept": kept, "failed": len(failed)}
    written = [str(path) for path in (out, probabilities) if path is not None and done]
    if page is not None and folder:
        from mona_infer.cli.pages import write_all_cases

        write_all_cases(page, jobs, todo, cases, sealed, options, scan)
    if page is not None and (folder or done):
        written.append(str(page))
    _write(report, [stats, json_file], preview, pictures, sealed, written)
    if quiet:
        typer.echo(json.dumps(report, indent=1))
    elif folder:
        typer.echo(f"{done} segmented, {len(kept)} had a mask already, {len(failed)} failed")
    if written and not quiet:
        typer.echo(f"wrote {', '.join(written)}")
    if failed:
        names = ", ".join(failed[:5]) + (", ..." if len(failed) > 5 else "")
        raise CheckFailed(f"{len(failed)} of {len(jobs)} cases failed ({names}); the others are done")


def _read_model(given: Path | str | None) -> Future[Model | None]:
    """Begin to read the model: its hash is computed while the modules that will use it are imported.

    None where the scan has to be seen first, to choose among bundled models for several kinds of scan.
    """
    from concurrent.futures import ThreadPoolExecutor

    from mona_infer.models.file import read_model
    from mona_infer.models.find import chosen_model

    reader = ThreadPoolExecutor(1)
    reading = reader.submit(lambda: read_model(found) if (found := chosen_model(given)) is not None else None)
    reader.shutdown(wait=False)
    return reading


def _model_of(scan: Path, series: str | None, *, quiet: bool) -> Model:
    """The bundled model for a scan, of a folder the first one: a folder holds scans of one kind."""
    from mona_infer.io.read import read_volume
    from mona_infer.models.bundled import best_of_each
    from mona_infer.models.fitting import fitting

    model, reason = fitting(read_volume(scan, frame=0, series=series), best_of_each())
    typer.echo(reason, err=quiet)
    return model


def _check_options(stats: Path | None, preview: Path | None, page: Path | None, frame: str | None) -> None:
    for name, path, suffix in (("stats", stats, ".json"), ("preview", preview, ".png"), ("page", page, ".html")):
        if path is not None and path.suffix != suffix:
            raise InputError(f"expected --{name} FILE{suffix}, found {path}")
    if frame is not None and frame != "all" and not frame.isdecimal():
        raise InputError(f"--frame must be 'all' or a number, 0 or greater; found {frame!r}")


def _check_outputs(jobs: list[Job], files: list[Path | None], folders: list[Path | None]) -> None:
    """Whether everything can be written, before the network starts."""
    from mona_infer.io.atomic import check_writable
    from mona_infer.io.formats import SEG

    for path in files:
        if path is not None:
            check_writable(path)
    for path in folders:
        if path is not None:
            check_writable(path, folder=True)
    if folders[0] is None:
        check_writable(jobs[0].out)
    if jobs[0].out.suffix == SEG:
        from mona_infer.io.dicom.segmentation.write import check_highdicom

        check_highdicom()


def _bundled(model: Model) -> dict[str, str]:
    """What a report says of a model that came with mona, beside its file."""
    return {} if model.card is None else {"name": model.card.name, "licence": model.card.licence}


class _Setup:
    """Starts the engine when the pipeline asks for it, and then says which one it is."""

    def __init__(self, model: Model, engine: str, quiet: bool, **options: Any) -> None:
        self._model, self._engine, self._quiet, self._options = model, engine, quiet, options
        self.description = ""

    def segmenter(self) -> Segmenter:
        from mona_infer.segmenter import Segmenter

        # The pipeline looks at each scan when it is read, so that a bad one is refused before the network is ready.
        made = Segmenter(self._model, engine=self._engine, force=True, **self._options)
        self.description = f"{self._model.label} ({self._model.precision}) on {made.engine.description}"
        if not self._quiet:
            typer.echo(f"model {self.description}")
        return made


def _print_case(case: CaseReport, *, quiet: bool) -> None:
    for warning in case.warnings:
        typer.echo(f"warning: {case.case}: {warning}", err=True)
    if case.error is not None or not quiet:
        typer.echo(f"{case.case}: {case.describe()}", err=case.error is not None)


def _write(
    report: dict[str, Any],
    files: list[Path | None],
    preview: Path | None,
    pictures: list[Any],
    model: Model,
    written: list[str],
) -> None:
    """Write report and preview, adding their names to `written`; a late failure says what was written before it."""
    from mona_infer.io.atomic import write_text

    try:
        for path in files:
            if path is not None:
                write_text(path, json.dumps(report, indent=1) + "\n")
                written.append(str(path))
        if preview is not None and pictures:
            from mona_infer.viewing.pictures import montage

            montage(preview, pictures, model.task)
            written.append(str(preview))
    except (MonaError, OSError, MemoryError) as error:  # a disk that filled up meanwhile, say
        reason = str(error) or "there is not enough memory for the report"
        raise InputError(f"{reason}; written before that: {', '.join(written) or 'nothing'}") from error
