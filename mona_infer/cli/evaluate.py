"""`mona evaluate PRED REF`: masks against references, per case and class, with the rules in words."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from mona_infer.cli.classes import class_names
from mona_infer.errors import InputError
from mona_infer.io.formats import stem
from mona_infer.io.pairing import masks_in, match_cases


def evaluate(
    prediction: Path = typer.Argument(
        ..., metavar="PRED", help="A mask (NIfTI, NRRD, MetaImage, DICOM-SEG), or a folder of masks."
    ),
    reference: Path = typer.Argument(
        ..., metavar="REF", help="Its reference, or a folder with files of the same names."
    ),
    definition: str = typer.Option("sound", help="'sound' (mm, misses count) or 'paper' (the published code's rules)."),
    tolerance: float = typer.Option(
        2.0, min=0, metavar="MM", help="NSD: how far apart two borders may lie (under 'paper': voxels)."
    ),
    classes: str = typer.Option(
        "", metavar="ID[=NAME],...", help="Classes to measure, e.g. 1=RV,2=Myo,3=LV. Default: all."
    ),
    frame: int | None = typer.Option(
        None, min=0, metavar="N", help="Which frame of 4-D masks to measure, counted from 0."
    ),
    series: str | None = typer.Option(None, help="Which series of a DICOM prediction: number, description or UID."),
    page: Path | None = typer.Option(
        None, metavar="HTML", help="A page to look at in a browser; for folders, one of all cases and one of each."
    ),
    scan: Path | None = typer.Option(None, help="The scan (or folder of scans) to show under the masks of --page."),
    keep_names: bool = typer.Option(False, "--keep-names", help="Also show the folders of the files on the pages."),
    cluster: str | None = typer.Option(
        None, metavar="WHERE", help="Spread the cases over workers: local:4, tcp://scheduler:8786 or slurm:16."
    ),
    slurm: list[str] = typer.Option(
        [], "--slurm", metavar="KEY=VALUE", help="What a Slurm job asks for, e.g. queue=short, walltime=02:00:00."
    ),
    csv_path: str | None = typer.Option(None, "--csv", metavar="[FILE]", help="Write one row per case and class."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Measure masks against references: DSC, NSD, ASD, ASSD, HD95 and more per case and class.

    --csv and --json hold all metrics; the table shows as many as the terminal has room for. Both write to standard
    output when no file is named, and the table is then left out.
    """
    from mona_infer.evaluation.measure import as_csv, measure
    from mona_infer.evaluation.metrics import DEFINITIONS
    from mona_infer.io.atomic import check_writable, write_text

    if definition not in DEFINITIONS:
        raise InputError(f"unknown --definition {definition!r}; choose {' or '.join(DEFINITIONS)}")
    names = class_names(classes)
    files = [Path(where) for where in (csv_path, json_path) if where and where != "-"]
    _check_page(page, scan, reference)
    for path in (*files, *([page] if page is not None else [])):
        check_writable(path)
    if cluster is not None and "://" in cluster:  # workers that were started in another folder
        prediction, reference = prediction.absolute(), reference.absolute()
    cases = match_cases(prediction, reference)
    extra = sorted(set(masks_in(prediction)) - {stem(case.prediction) for case in cases}) if reference.is_dir() else []
    if extra:
        count = "1 mask has" if len(extra) == 1 else f"{len(extra)} masks have"
        shown = ", ".join(extra[:10]) + (", ..." if len(extra) > 10 else "")
        typer.echo(f"note: {prediction}: {count} no reference, not measured: {shown}", err=True)
    spread = None
    if cluster is not None:
        from mona_infer.cohort.spread import spread_over

        spread = spread_over(cluster, slurm, "measuring")
    report = measure(cases, list(names) or None, definition, frame, series, tolerance, names, spread)
    report["without_reference"] = extra
    if page is not None:
        from mona_infer.cli.pages import write_evaluation
        from mona_infer.viewing.from_files import coloured

        listed = coloured({int(label): entry["name"] for label, entry in report["mean"]["classes"].items()})
        write_evaluation(
            page,
            cases,
            listed,
            DEFINITIONS[definition],
            tolerance=tolerance,
            scans=scan,
            frame=frame,
            series=series,
            folder=reference.is_dir(),
            keep_names=keep_names,
        )
        files.append(page)
    for where, text in ((csv_path, as_csv(report)), (json_path, json.dumps(report, indent=2) + "\n")):
        if where == "-":
            typer.echo(text, nl=False)
        elif where:
            write_text(Path(where), text)
    if "-" not in (csv_path, json_path):
        from mona_infer.evaluation.table import print_report

        print_report(report)
        if files:
            typer.echo(f"wrote {', '.join(map(str, files))}")


def _check_page(page: Path | None, scan: Path | None, reference: Path) -> None:
    if page is not None and page.suffix != ".html":
        raise InputError(f"expected --page FILE.html, found {page}")
    if scan is None:
        return
    if page is None:
        raise InputError("--scan is shown on a page; add --page FILE.html")
    if not scan.exists():
        raise InputError(f"{scan} (from --scan) does not exist")
