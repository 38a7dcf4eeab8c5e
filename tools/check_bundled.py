"""What a bundled model does with real scans: its own kind, and others.

    python tools/check_bundled.py --acdc FOLDER [--other FOLDER ...] [--model NAME] [--bundled FOLDER]

FOLDER of --acdc holds the patients as NIfTI (patient002/patient002_frame01.nii.gz and ..._gt.nii.gz), those of --other
NIfTI scans of something else.  Prints, for the model: how many ACDC volumes it refuses or warns about (it must refuse
none), the DSC of three validation volumes through `mona segment` with the seconds that takes, start included, and of
one of them written as a DICOM series; and how many of the other scans, of a made-up CT and of a made-up head it
refuses.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np

from mona_infer import Volume, read_volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.io.nifti import write_nifti
from mona_infer.models import bundled
from mona_infer.models.file import Model, read_model
from mona_infer.models.find import named_model
from mona_infer.segmenting.scan_kind import contradictions
from mona_infer.segmenting.warnings import training_differences

ROOT = Path(__file__).parents[1]
SHOWN = ("patient002_frame01", "patient019_frame01", "patient028_frame02")
# Row, column and slice direction of a short-axis stack in a patient, in NIfTI's RAS+: the files themselves do not say.
ROW, COLUMN = np.array([-0.71, -0.62, -0.33]), np.array([0.05, -0.42, -0.90])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acdc", type=Path, required=True)
    parser.add_argument("--other", type=Path, action="append", default=[])
    parser.add_argument("--model", help="default: the best")
    parser.add_argument("--bundled", type=Path, help="look for models here instead of in mona_infer/models/bundled")
    options = parser.parse_args()
    if options.bundled:
        bundled.FOLDER = options.bundled
    model = read_model(named_model(options.model) if options.model else bundled.best() or sys.exit("there is none"))
    print(model.card.describe() if model.card else model.label)
    scans = sorted(path for path in options.acdc.rglob("*_frame??.nii.gz"))
    report(f"ACDC, {len(scans)} volumes", model, [read_volume(path) for path in scans])
    for folder in options.other:
        scans = sorted(path for path in folder.glob("*.nii.gz") if not path.name.startswith("."))
        report(f"{folder.name}, {len(scans)} volumes", model, [read_volume(path) for path in scans])
    with tempfile.TemporaryDirectory() as temporary:
        segment_own(model, options.acdc, Path(temporary))
        segment_others(model, Path(temporary))


def report(title: str, model: Model, volumes: list[Volume]) -> None:
    assert model.card is not None
    kind, refused = model.card.scans, Counter[str]()
    warned = Counter[str]()
    for volume in volumes:
        refused["refused" if contradictions(volume, model.task, kind) else "taken"] += 1
        warned.update(training_differences(SliceStack(volume, model.task), kind))
    print(f"{title}: {dict(refused)}")
    for words, count in warned.most_common(4):
        print(f"   {count} warned: {words}")


def mona_segment(model: Model, scan: Path, folder: Path, *words: str) -> None:
    """The command as a user starts it."""
    mask = folder / "mask.nii.gz"
    command = [Path(sys.executable).with_name("mona"), "segment", scan, "--out", mask, "--overwrite", *words]
    if model.path.parent == Path(bundled.__file__).parent:
        command += ["--model", model.label]
    else:  # the folder that --bundled named
        code = (
            f"import mona_infer.models.bundled as b; from pathlib import Path; b.FOLDER = Path({str(bundled.FOLDER)!r})"
        )
        code += "; from mona_infer.cli.main import main; main()"
        command = [sys.executable, "-c", code, *command[1:], "--model", model.label]
    start = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder, env={**os.environ})
    seconds = time.perf_counter() - start
    told = [line for line in done.stdout.splitlines() if "mL" in line] + done.stderr.splitlines()
    print(f"{scan.name}: exit {done.returncode}, {seconds:.1f} s")
    for line in told:
        print(f"   {line}")


def segment_own(model: Model, acdc: Path, folder: Path) -> None:
    for name in SHOWN:
        scan = acdc / name[:10] / f"{name}.nii.gz"
        mona_segment(model, scan, folder, "--reference", str(scan).replace(".nii.gz", "_gt.nii.gz"))
    image, label = (nib.load(acdc / SHOWN[0][:10] / f"{SHOWN[0]}{end}.nii.gz") for end in ("", "_gt"))
    voxels, labels = (np.asarray(i.dataobj) for i in (image, label))
    affine = oblique(image.header.get_zooms())
    write_series(folder / "series", voxels, affine)
    nib.save(nib.Nifti1Image(labels, affine), folder / "series_gt.nii.gz")
    mona_segment(model, folder / "series", folder, "--reference", str(folder / "series_gt.nii.gz"))
    rows = (voxels.shape[1] - voxels.shape[0]) // 2 + 15  # a matrix that is wider than high, as many scanners make
    write_series(folder / "wide", voxels[:, rows:-rows], affine)
    nib.save(nib.Nifti1Image(labels[:, rows:-rows], affine), folder / "wide_gt.nii.gz")
    mona_segment(model, folder / "wide", folder, "--reference", str(folder / "wide_gt.nii.gz"))


def oblique(zooms: tuple[float, ...]) -> np.ndarray:
    row = ROW / np.linalg.norm(ROW)
    column = COLUMN - row * (row @ COLUMN)
    column /= np.linalg.norm(column)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([row, column, np.cross(row, column)], 1) * np.array(zooms[:3])
    affine[:3, 3] = 120, 150, 90
    return affine


def segment_others(model: Model, folder: Path) -> None:
    ct, head = body(np.array([80, 80, 40]), -1000, 60), body(np.array([90, 90, 24]), 0, 300)
    write_nifti(folder / "ct.nii.gz", Volume(ct, np.diag([-4.0, -4.0, 5.0, 1.0])))
    write_series(folder / "ct-series", ct, np.diag([-4.0, -4.0, 5.0, 1.0]), Modality="CT")
    write_nifti(folder / "head-3d.nii.gz", Volume(body(np.array([90, 110, 90]), 0, 300), np.diag([2.0, 2.0, 2.0, 1.0])))
    write_series(folder / "head-axial-mr", head, np.diag([-2.5, -2.5, 6.0, 1.0]))
    for name in ("ct.nii.gz", "ct-series", "head-3d.nii.gz", "head-axial-mr"):
        mona_segment(model, folder / name, folder)


def body(shape: np.ndarray, air: int, tissue: int) -> np.ndarray:
    """An ellipsoid of noisy tissue in air."""
    grid = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    inside = grid[0] ** 2 / 0.8 + grid[1] ** 2 / 0.6 < 1
    noise = np.random.default_rng(0).normal(0, 20, shape)
    return np.where(inside, tissue + noise, air).astype(np.int16)


def write_series(folder: Path, voxels: np.ndarray, affine: np.ndarray, **changes: str) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers import dicom_files

    dicom_files.write_series(folder, voxels.astype(np.int16), affine, **changes)


if __name__ == "__main__":
    main()
