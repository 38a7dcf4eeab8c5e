"""`mona segment SCAN --out MASK`: a scan or a folder of scans, a model, and masks that lie exactly on the scans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.engines.base import AUTO, engines
from mona_infer.errors import CheckFailed, InputError, MonaError

if TYPE_CHECKING:
    from mona_infer.segmenter import Segmenter


def segment(
    scan: Path = typer.Argument(
        ..., metavar="SCAN", help="NIfTI, NRRD or MetaImage file, DICOM folder or zip, or a folder of such."
    ),
    out: Path = typer.Option(
        ...,
        metavar="MASK",
        help="The mask: .nii.gz, .nii, .nrrd, .seg.nrrd, of DICOM also .dcm; of a folder of scans, a folder.",
    ),
    model: Path | None = typer.Option(None, help="Default: $MONA_MODEL, else the newest export under runs/."),
    format: str | None = typer.Option(
        None, metavar="SUFFIX", help="Masks of a folder: nii.gz (default), nii, nrrd, seg.nrrd, or dcm (DICOM-SEG)."
    ),
    engine: str = typer.Option(AUTO, help=f"{', '.join([AUTO, *engines()])}."),
    reference: Path | None = typer.Option(None, help="Measure DSC and ASD against this mask (or folder of masks)."),
    largest: bool = typer.Option(False, "--keep-largest", help="Keep only the largest connected piece of each class."),
    tta: bool = typer.Option(False, "--tta", help="Average over mirror images: a little better, four times the work."),
    probabilities: Path | None = typer.Option(None, metavar="FOLDER", help="Write a probability map for each class."),
    stats: Path | None = typer.Option(None, metavar="FILE", help="Write volumes, areas and confidence as JSON."),
    preview: Path | None = typer.Option(None, metavar="PNG", help="Draw slices with the mask over them."),
    frame: str | None = typer.Option(None, metavar="N|all", help="Which frame of a 4-D scan or cine, from 0; or all."),
    series: str | None = typer.Option(None, help="Which series of a DICOM folder: number, description or UID."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Segment again what has a mask already."),
    force: bool = typer.Option(False, "--force", help="Also scans of another modality than the model's."),
    threads: int = typer.Option(0, min=0, metavar="N", help="Of the network. Default: all cores."),
    batch: int | None = typer.Option(None, min=1, metavar="N", help="Slices at a time. Default: the engine's best."),
    max_ram: str | None = typer.Option(None, metavar="SIZE", help="Hold no more memory than this, such as 2GB."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Segment a scan, or every scan of a folder, with an exported model.

    Of a folder, one bad case never stops the rest (exit code 1 tells that there was one), and what has a mask
    already is not done again.
    """
    from mona_infer.io.atomic import check_writable
    from mona_infer.io.formats import SEG
    from mona_infer.models.file import read_model
    from mona_infer.models.find import find_model
    from mona_infer.segmenting.jobs import clear_left_behind, find_jobs
    from mona_infer.segmenting.outputs import Wishes
    from mona_infer.segmenting.pipeline import run
    from mona_infer.system.memory_budget import parse_size

    for path, suffix in ((stats, ".json"), (preview, ".png")):
        if path is not None and path.suffix != suffix:
            raise InputError(f"expected --{'stats' if suffix == '.json' else 'preview'} FILE{suffix}, found {path}")
    if frame is not None and frame != "all" and not frame.isdecimal():
        raise InputError(f"expected --frame all or a number from 0 on, found {frame!r}")
    ram = parse_size(max_ram) if max_ram else 0
    jobs, folder = find_jobs(scan, out, reference, format)
    kept = [] if overwrite else [job for job in jobs if job.out.exists()]
    if kept and not folder:
        raise InputError(f"{out} exists already; --overwrite replaces it")
    to_write = [stats, preview, Path(json_path) if json_path and json_path != "-" else None]
    for path in filter(None, to_write):
        check_writable(path)
    check_writable(out, folder=folder)
    if probabilities is not None:
        check_writable(probabilities, folder=True)
    if out.suffix == SEG:
        from mona_infer.io.dicom.segmentation.write import check_highdicom

        check_highdicom()
    sealed = read_model(find_model(model))
    quiet, chosen = json_path == "-", ""

    def start() -> Segmenter:
        nonlocal chosen
        from mona_infer.segmenter import Segmenter

        made = Segmenter(sealed, engine=engine, tta=tta, largest=largest, batch=batch, threads=threads, max_ram=ram)
        chosen = f"{sealed.path} ({sealed.precision}) on {made.engine.description}"
        if not quiet:
            typer.echo(f"model {chosen}")
        return made

    wishes = Wishes(
        frame=None if frame in (None, "all") else int(frame or 0),
        every_frame=frame == "all",
        series=series,
        force=force,
        probabilities=probabilities,
        details=stats is not None or json_path is not None,
        pictures=preview is not None,
    )
    clear_left_behind(jobs)
    todo = [job for job in jobs if job not in kept]
    cases, pictures = [], []
    for case, rows in run(todo, sealed, wishes, start, folder=folder, max_ram=ram) if todo else ():
        cases.append(case)
        pictures += rows
        _tell(case, quiet=quiet)
    failed = [case for case in cases if "error" in case]
    done = len(cases) - len(failed)
    written = [str(path) for path in (out, probabilities) if path is not None and done]
    report: dict[str, Any] = {"model": {"path": str(sealed.path), "sha256": sealed.seal}, "engine": chosen or None}
    report |= {"cases": cases, "kept": [job.name for job in kept], "failed": len(failed)}
    try:
        for name in _write(report, stats, json_path):
            written.append(name)
        if preview is not None and pictures:
            from mona_infer.viewing.pictures import montage

            montage(preview, pictures, sealed.task)
            written.append(str(preview))
    except (MonaError, OSError, MemoryError) as error:  # a disk that filled up meanwhile, say
        reason = str(error) or "there is not enough memory for the report"
        raise InputError(f"{reason}; written before that: {', '.join(written) or 'nothing'}") from error
    if not quiet:
        if folder:
            typer.echo(f"{done} segmented, {len(kept)} had a mask already, {len(failed)} failed")
        if written:
            typer.echo(f"wrote {', '.join(written)}")
    if failed:
        names = ", ".join(case["case"] for case in failed[:5]) + (", ..." if len(failed) > 5 else "")
        raise CheckFailed(f"{len(failed)} of {len(jobs)} cases failed ({names}); the others are done")


def _tell(case: dict[str, Any], *, quiet: bool) -> None:
    if "error" in case:
        typer.echo(f"{case['case']}: {case['error']}", err=True)
        return
    for words in case["warnings"]:
        typer.echo(f"warning: {case['case']}: {words}", err=True)
    if quiet:
        return
    if "frames" in case:
        typer.echo(f"{case['case']}: {_beat(case)}")
        return
    parts = []
    for name, entry in case["classes"].items():
        score = case.get("scores", {}).get(name)
        asd = f", ASD {score['asd']:.2f} mm" if score and score["asd"] is not None else ""
        parts.append(f"{name} {entry['ml']:.1f} mL" + (f" (DSC {score['dsc']:.3f}{asd})" if score else ""))
    typer.echo(f"{case['case']}: {', '.join(parts)}")


def _beat(case: dict[str, Any]) -> str:
    count, cine = len(case["frames"]), case["cine"]
    if cine is None:
        return f"{count} frames; no class of this model is the left ventricle, or it was found nowhere"
    ends = ", ".join(f"{end} {cine[end]['ml']:.1f} mL (frame {cine[end]['frame']})" for end in ("ED", "ES"))
    return f"{count} frames, {cine['class']} {ends}, ejection fraction {100 * cine['ejection_fraction']:.0f} %"


def _write(report: dict[str, Any], stats: Path | None, json_path: str | None) -> Iterator[str]:
    """Write the report wherever it was asked for; yields the name of each file that is written."""
    from mona_infer.io.atomic import write_text

    text = json.dumps(report, indent=1) + "\n"
    if json_path == "-":
        typer.echo(text, nl=False)
    for path in (stats, Path(json_path) if json_path and json_path != "-" else None):
        if path is not None:
            write_text(path, text)
            yield str(path)
