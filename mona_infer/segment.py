"""`mona segment SCAN --out MASK`: a scan or a folder of scans, a model, and masks that lie exactly on the scans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.errors import CheckFailed, InputError, MonaError

if TYPE_CHECKING:
    from mona_infer.jobs import Job
    from mona_infer.picture import Picture
    from mona_infer.segmenter import Segmentation, Segmenter
    from mona_infer.volume import Volume


@dataclass(frozen=True)
class Wishes:
    """What to do with every case."""

    frame: int | None
    series: str | None
    force: bool
    probabilities: Path | None
    details: bool  # confidence is wanted
    pictures: bool


def segment(
    scan: Path = typer.Argument(..., metavar="SCAN", help="NIfTI file, DICOM folder or zip, or a folder of such."),
    out: Path = typer.Option(..., metavar="MASK", help="The mask (.nii, .nii.gz); of a folder of scans, a folder."),
    model: Path | None = typer.Option(None, help="Default: $MONA_MODEL, else the newest export under runs/."),
    engine: str = typer.Option("auto", help="auto, cpu, cuda, tensorrt, ort-tensorrt."),
    reference: Path | None = typer.Option(None, help="Measure DSC and ASD against this mask (or folder of masks)."),
    largest: bool = typer.Option(False, "--keep-largest", help="Keep only the largest connected piece of each class."),
    tta: bool = typer.Option(False, "--tta", help="Average over mirror images: a little better, four times the work."),
    probabilities: Path | None = typer.Option(None, metavar="FOLDER", help="Write a probability map for each class."),
    stats: Path | None = typer.Option(None, metavar="FILE", help="Write volumes, areas and confidence as JSON."),
    preview: Path | None = typer.Option(None, metavar="PNG", help="Draw slices with the mask over them."),
    frame: int | None = typer.Option(None, min=0, help="Which frame of a 4-D scan or cine series, counted from 0."),
    series: str | None = typer.Option(None, help="Which series of a DICOM folder: number, description or UID."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Segment again what has a mask already."),
    force: bool = typer.Option(False, "--force", help="Also scans of another modality than the model's."),
    threads: int = typer.Option(0, min=0, help="Of the network. Default: all cores."),
    batch: int | None = typer.Option(None, min=1, help="Slices at a time. Default: what the engine likes best."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Segment a scan, or every scan of a folder, with an exported model.

    Of a folder, one bad case never stops the rest (exit code 1 tells that there was one), and what has a mask
    already is not done again.
    """
    from mona_infer.find_model import find_model
    from mona_infer.jobs import clear_left_behind, find_jobs
    from mona_infer.segmenter import Segmenter

    for path, suffix in ((stats, ".json"), (preview, ".png")):
        if path is not None and path.suffix != suffix:
            raise InputError(f"expected --{'stats' if suffix == '.json' else 'preview'} FILE{suffix}, found {path}")
    jobs, folder = find_jobs(scan, out, reference)
    kept = [] if overwrite else [job for job in jobs if job.out.exists()]
    if kept and not folder:
        raise InputError(f"{out} exists already; --overwrite replaces it")
    segmenter = Segmenter(find_model(model), engine=engine, tta=tta, largest=largest, batch=batch, threads=threads)
    chosen = f"{segmenter.model.path} ({segmenter.model.precision}) on {segmenter.engine.words}"
    if json_path != "-":
        typer.echo(f"model {chosen}")
    wishes = Wishes(
        frame, series, force, probabilities, stats is not None or json_path is not None, preview is not None
    )
    clear_left_behind(jobs)
    todo = [job for job in jobs if job not in kept]
    cases, pictures = [], []
    for case, rows in _run(todo, segmenter, wishes, folder):
        cases.append(case)
        pictures += rows
        _tell(case, quiet=json_path == "-")
    failed = [case for case in cases if "error" in case]
    written = [str(out)] if len(failed) < len(cases) else []
    report: dict[str, Any] = {
        "model": {"path": str(segmenter.model.path), "sha256": segmenter.model.seal},
        "engine": chosen,
    }
    report |= {"cases": cases, "kept": [job.name for job in kept], "failed": len(failed)}
    written += _write(report, stats, json_path)
    if preview is not None and pictures:
        from mona_infer.picture import montage

        montage(preview, pictures)
        written.append(str(preview))
    if probabilities is not None and len(failed) < len(cases):
        written.append(str(probabilities))
    if json_path != "-":
        if folder:
            done = len(cases) - len(failed)
            typer.echo(f"{done} segmented, {len(kept)} had a mask already, {len(failed)} failed")
        if written:
            typer.echo(f"wrote {', '.join(written)}")
    if failed:
        names = ", ".join(case["case"] for case in failed[:5]) + (", ..." if len(failed) > 5 else "")
        raise CheckFailed(f"{len(failed)} of {len(jobs)} cases failed ({names}); the others are done")


Case = tuple[dict[str, Any], "list[list[tuple[str, Picture]]]"]


def _run(jobs: list[Job], segmenter: Segmenter, wishes: Wishes, folder: bool) -> Iterator[Case]:
    """Each case's findings and pictures, in order: the next scan is read and the last mask written meanwhile."""
    from mona_infer.progress import progress

    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        scans: dict[int, Future[Any]] = {}
        last: Future[Case] | None = None

        def read(n: int) -> None:
            if n < len(jobs):
                scans[n] = reader.submit(_read, jobs[n], segmenter, wishes)

        read(0)
        for n, job in enumerate(progress(jobs, len(jobs), "segmenting")):
            read(n + 1)
            pending: Future[Case]
            try:
                volume, reference = scans.pop(n).result()
                found = segmenter.segment(
                    volume, confidence=wishes.details, probabilities=wishes.probabilities is not None
                )
                pending = writer.submit(_finish, job, found, reference, wishes)
            except Exception as error:
                pending = Future()
                pending.set_exception(error)
            if last is not None:
                yield _outcome(jobs[n - 1], last, folder)
            last = pending
        if last is not None:
            yield _outcome(jobs[-1], last, folder)


def _outcome(job: Job, pending: Future[Case], folder: bool) -> Case:
    """What became of a case.  Of a folder every failure is a line of the report; a single scan's is the command's."""
    try:
        return pending.result()
    except Exception as error:
        if not folder:
            raise
        known = isinstance(error, MonaError | OSError | MemoryError)
        words = str(error) if known and str(error) else f"{type(error).__name__}: {error}"
        return {"case": job.name, "scan": str(job.scan), "error": " ".join(words.split())}, []


def _read(job: Job, segmenter: Segmenter, wishes: Wishes) -> tuple[Volume, Volume | None]:
    """The scan and, on its grid, the reference: both are known to be good before the network starts."""
    from mona_infer.align import on_grid_of
    from mona_infer.doubts import check_modality
    from mona_infer.read import label_ids, read_volume

    volume = read_volume(job.scan, frame=wishes.frame, series=wishes.series)
    check_modality(volume, segmenter.task, force=wishes.force)
    if job.reference is None:
        return volume, None
    reference = on_grid_of(read_volume(job.reference, frame=wishes.frame), volume)
    label_ids(reference)
    return volume, reference


def _finish(job: Job, found: Segmentation, reference: Volume | None, wishes: Wishes) -> Case:
    from mona_infer.doubts import doubts
    from mona_infer.findings import findings, preview, scores
    from mona_infer.nifti import write_mask, write_nifti

    case: dict[str, Any] = {"case": job.name, "scan": str(job.scan), "mask": str(job.out)}
    case["spacing"] = [round(s, 6) for s in found.mask.spacing]
    case["classes"] = findings(found)
    case["warnings"] = [*found.mask.notes, *doubts(found.stack)]
    if reference is not None:
        case["scores"] = scores(found, reference)
    rows = preview(found, job.name) if wishes.pictures else []
    for name, chances in found.probabilities.items():
        assert wishes.probabilities is not None
        write_nifti(wishes.probabilities / job.name / f"{name}.nii.gz", chances)
    write_mask(job.out, found.mask)  # last of all: a mask that is there is a case that is done
    return case, rows


def _tell(case: dict[str, Any], *, quiet: bool) -> None:
    if "error" in case:
        typer.echo(f"{case['case']}: {case['error']}", err=True)
        return
    for words in case["warnings"]:
        typer.echo(f"warning: {case['case']}: {words}", err=True)
    if quiet:
        return
    parts = []
    for name, entry in case["classes"].items():
        score = case.get("scores", {}).get(name)
        asd = f", ASD {score['asd']:.2f} mm" if score and score["asd"] is not None else ""
        parts.append(f"{name} {entry['ml']:.1f} mL" + (f" (DSC {score['dsc']:.3f}{asd})" if score else ""))
    typer.echo(f"{case['case']}: {', '.join(parts)}")


def _write(report: dict[str, Any], stats: Path | None, json_path: str | None) -> list[str]:
    from mona_infer.atomic import write_text

    text = json.dumps(report, indent=1) + "\n"
    if json_path == "-":
        with suppress(BrokenPipeError):
            typer.echo(text, nl=False)
    files = [path for path in (stats, Path(json_path) if json_path and json_path != "-" else None) if path is not None]
    for path in files:
        write_text(path, text)
    return [str(path) for path in files]
