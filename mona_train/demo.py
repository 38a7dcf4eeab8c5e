"""`mona demo`: the embedded phantom written to disk, imperfect masks of it measured, and a picture of both."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

PATIENTS = 4  # of the phantom's test split: enough for an interval, quick to write


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder to write to; files of an earlier demo are replaced."),
    seed: int = typer.Option(0, min=0, help="Another seed, other hearts."),
) -> None:
    """Make a small phantom data set, measure imperfect masks of it, and draw a picture."""
    from mona_infer.errors import InputError
    from mona_infer.evaluate import match_cases, measure
    from mona_infer.nifti import write_mask, write_nifti
    from mona_infer.picture import montage, overlay
    from mona_infer.progress import progress
    from mona_infer.report import print_report
    from mona_infer.stack import SliceStack
    from mona_infer.task import CARDIAC
    from mona_train.phantom import phantom

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose a folder with --out")
    tiles = []
    cases = itertools.islice(phantom(seed, train=0, val=0, test=PATIENTS), 2 * PATIENTS)
    for case in progress(cases, 2 * PATIENTS, "drawing hearts"):
        prediction = case.label.with_voxels(_imperfect(case.label.voxels))
        write_nifti(out / "images" / f"{case.name}.nii.gz", case.image)
        write_mask(out / "references" / f"{case.name}.nii.gz", case.label)
        write_mask(out / "masks" / f"{case.name}.nii.gz", prediction)

        stack = SliceStack(case.image, CARDIAC)
        view = stack.slicing.view
        k = int(np.argwhere(view(case.label.voxels))[:, 0].mean())  # in the middle of the heart
        plane = (view(case.image.voxels)[k] - stack.low) / (stack.high - stack.low)
        tiles.append(
            [
                (f"{case.name}: image", overlay(plane, None, CARDIAC)),
                ("reference", overlay(plane, view(case.label.voxels)[k], CARDIAC)),
                ("mask", overlay(plane, view(prediction.voxels)[k], CARDIAC)),
            ]
        )
    report = measure(match_cases(out / "masks", out / "references"))
    print_report(report, {c.id: c.name for c in CARDIAC.classes[1:]})
    half = len(tiles) // 2
    montage(out / "demo.png", [left + right for left, right in zip(tiles[:half], tiles[half:], strict=True)])
    typer.echo(f"Measure them yourself: mona evaluate {out / 'masks'} {out / 'references'} --classes 1=RV,2=Myo,3=LV")
    typer.echo(f"wrote {out / 'images'}, {out / 'references'}, {out / 'masks'}, {out / 'demo.png'}")


def _imperfect(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What a mediocre model might answer: everything two pixels off, the last slice of the RV lost."""
    moved = np.roll(labels, (2, 1), axis=(0, 1))
    rv = np.nonzero((moved == 1).any(axis=(0, 1)))[0]
    moved[:, :, rv[-1:]] *= moved[:, :, rv[-1:]] != 1
    return moved
