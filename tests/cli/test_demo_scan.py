"""The end of `mona demo`: a real scan, where one is at hand, through the model that comes with mona."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import bundles, dataset_files
from PIL import Image

from mona_infer.models import bundled
from mona_train.cli.demo_scan import try_real_scan


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_DATA", raising=False)
    with bundles.stand_ins(tmp_path / "bundled"):
        yield tmp_path


def test_a_validation_patient_is_segmented_and_measured(place: Path) -> None:
    """Patient 1 comes first, but models were trained on it; 19 is of the published validation list."""
    dataset_files.acdc_challenge(place / "data/acdc", patients=(1, 19), write=large)
    line, written = try_real_scan(place)
    assert line.startswith("A real scan, patient019_frame01 of ACDC, with all, which comes with mona: DSC RV 0.")
    mask, picture = written
    assert np.asarray(nib.load(mask).dataobj).any() and Image.open(picture).size[0] > 100


def large(path: Path, voxels: np.ndarray) -> None:
    """A field of view that a heart has room in."""
    dataset_files.save(path, voxels.repeat(5, 0).repeat(5, 1), np.diag([1.5, 1.5, 10.0, 1.0]))


@pytest.mark.parametrize("there", ["nothing", "training patients", "unlabelled"])
def test_else_a_line_says_how(place: Path, there: str) -> None:
    if there == "training patients":
        dataset_files.acdc_challenge(place / "data/acdc", patients=(1, 3))
    elif there == "unlabelled":
        dataset_files.acdc_challenge(place / "data/acdc", patients=(19, 28), labels=False)
    line, written = try_real_scan(place)
    assert line == "A real scan: mona segment SCAN --out mask.nii.gz uses all, which comes with mona" and not written


def test_without_a_model_it_says_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # undone before `place`, which would otherwise leave its own folder behind
        patch.setattr(bundled, "FOLDER", place)
        assert try_real_scan(place) == ("", [])
