"""`mona view SCAN MASK`: one HTML file that shows a mask over its scan, in any browser, without a network."""

from __future__ import annotations

from pathlib import Path

import typer

from mona_infer.cli.classes import class_names
from mona_infer.errors import InputError


def view(
    scan: Path = typer.Argument(..., metavar="SCAN", help="A NIfTI, NRRD or MetaImage file, a DICOM folder or zip."),
    mask: Path = typer.Argument(..., metavar="MASK", help="Its mask, on the scan's grid."),
    out: Path | None = typer.Option(None, metavar="PAGE", help="The page. Default: the mask's name, with .html."),
    reference: Path | None = typer.Option(None, help="A reference mask to compare with."),
    classes: str = typer.Option("", metavar="ID=NAME,...", help="Names of the classes, e.g. 1=RV,2=Myo,3=LV."),
    frame: int | None = typer.Option(None, min=0, metavar="N", help="One frame of a cine, from 0. Default: all."),
    series: str | None = typer.Option(None, help="Which series of a DICOM folder: number, description or UID."),
    keep_names: bool = typer.Option(False, "--keep-names", help="Also show the folders of the files on the page."),
) -> None:
    """Write a page that shows a mask over its scan.

    The page is one HTML file that any browser opens from the disk: slices, 3-D, volumes, and with --reference the
    slices that differ most. It loads nothing and sends nothing. It holds the scan, so treat it like the scan.
    """
    from mona_infer.io.atomic import check_writable
    from mona_infer.io.formats import stem
    from mona_infer.viewing.from_files import page_of_files

    for path in (scan, mask, reference):
        if path is not None and not path.exists():
            raise InputError(f"{path} does not exist")
    page = out or mask.with_name(f"{stem(mask)}.html")
    if page.suffix != ".html":
        raise InputError(f"expected --out FILE.html, found {page}")
    check_writable(page)
    names = class_names(classes)
    report = page_of_files(
        scan, mask, page, reference=reference, names=names, frame=frame, series=series, keep_names=keep_names
    )
    for warning in report.warnings:
        typer.echo(f"warning: {report.case}: {warning}", err=True)
    typer.echo(f"{report.case}: {report.describe()}")
    typer.echo(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB)")
