"""`mona segment` where nothing was trained; `mona models` and `mona doctor` about what comes with mona."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from helpers import bundles, models
from helpers.dicom_files import write_series
from helpers.train_commands import Done, mona

from mona_infer.models import bundled

AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])
LINE = "all (bundled with mona): mean DSC 0.900 on 10 patients; for research"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("MONA_MODEL", raising=False)
    monkeypatch.delenv("MONA_DATA", raising=False)
    nib.save(nib.Nifti1Image(models.scan(0, (36, 40, 5)), AFFINE), tmp_path / "scan.nii.gz")
    with bundles.stand_ins(tmp_path / "mona/bundled"):
        yield tmp_path


def put(path: Path, shape: tuple[int, int, int], spacing: tuple[float, ...], low: int = 0) -> None:
    voxels = models.scan(0, shape)
    voxels[0] += np.int16(low)
    nib.save(nib.Nifti1Image(voxels, np.diag([*spacing, 1.0])), path)


def test_nothing_trained_and_no_model_given(place: Path) -> None:
    done = mona(place, "segment", "scan.nii.gz", "--out", "mask.nii.gz")
    first, second, *_, last = done.out.splitlines()
    assert (done.code, done.err, first, last) == (0, "", LINE, "wrote mask.nii.gz")
    assert second.startswith("model all (fp32) on ONNX Runtime")
    models.write(place / "own.onnx")
    own = mona(place, "segment", "scan.nii.gz", "--out", "own.nii.gz", "--model", "own.onnx")
    assert "bundled" not in own.out
    masks = [np.asarray(nib.load(place / f"{name}.nii.gz").dataobj) for name in ("mask", "own")]
    np.testing.assert_array_equal(*masks)


def test_by_name_and_as_json(place: Path) -> None:
    done = mona(place, "segment", "scan.nii.gz", "--out", "m.nii.gz", "--model", "few", "--json")
    assert done.code == 0 and done.err.startswith("few (bundled with mona): mean DSC 0.850")
    model = json.loads(done.out)["model"]
    assert (model["name"], model["licence"]) == ("few", "CC-BY-NC-SA-4.0") and model["path"].endswith("few.onnx")
    wrong = mona(place, "segment", "scan.nii.gz", "--out", "n.nii.gz", "--model", "fewer")
    assert wrong.code == 2 and "models that come with mona: all, few" in wrong.err


@pytest.mark.parametrize(
    ("name", "shape", "spacing", "low", "why"),
    [
        ("brain", (60, 70, 30), (1, 1, 1), 0, "a 3-D scan, not a stack of thick slices"),
        ("abdomen", (100, 90, 60), (3, 3, 5), 0, "it has 60 slices"),
        ("short-ct", (100, 90, 20), (3, 3, 5), -1500, "intensities go down to -15"),
    ],
)
def test_what_is_plainly_no_scan_for_it_is_refused(
    place: Path, name: str, shape: Any, spacing: Any, low: int, why: str
) -> None:
    put(place / f"{name}.nii.gz", shape, spacing, low)
    before = sorted(place.rglob("*"))
    done = mona(place, "segment", f"{name}.nii.gz", "--out", "mask.nii.gz")
    assert done.code == 2 and sorted(place.rglob("*")) == before
    assert done.err.count("\n") == 1 and done.err.startswith(f"mona: {name}.nii.gz is not a stack of bands")
    for words in (why, "mona train --dataset FOLDER", "--force"):
        assert words in done.err
    models.write(place / "own.onnx")
    assert mona(place, "segment", f"{name}.nii.gz", "--out", "own.nii.gz", "--model", "own.onnx").code == 0
    assert mona(place, "segment", f"{name}.nii.gz", "--out", "mask.nii.gz", "--force").code == 0


def test_dicom_of_another_modality_and_in_a_folder_the_others_are_done(place: Path) -> None:
    (place / "scans").mkdir()
    (place / "scan.nii.gz").rename(place / "scans/good.nii.gz")
    put(place / "scans/brain.nii.gz", (60, 70, 30), (1, 1, 1))
    write_series(place / "scans/ct", models.scan(), AFFINE, Modality="CT")
    write_series(place / "scans/mr", models.scan(), AFFINE)
    done = mona(place, "segment", "scans", "--out", "masks")
    assert done.code == 1 and "2 of 4 cases failed (brain, ct)" in done.err
    assert "ct: " in done.err and "is CT but this model was trained on MR" in done.err
    assert "warning: mr: its slices are axial, which a stack of bands never is; check the mask" in done.err
    assert {path.name for path in (place / "masks").iterdir()} == {"good.nii.gz", "mr.nii.gz"}


def test_the_list_and_a_card(place: Path) -> None:
    done = mona(place, "models")
    assert done.code == 0 and len(done.out.splitlines()) < 24 and max(map(len, done.out.splitlines())) < 120
    assert done.out.index("all: bands") < done.out.index("few: bands")
    assert "mona segment uses all." in done.out and "RV 0.800, LV 0.900" in done.out
    assert mona(place, "models", "few").out.startswith("# few\n\nA whole card.")
    listed = json.loads(mona(place, "models", "--json").out)["models"]
    assert [(m["name"], m["dsc"], m["licence"]) for m in listed] == [
        ("all", 0.9, "CC-BY-NC-SA-4.0"),
        ("few", 0.85, "CC-BY-NC-SA-4.0"),
    ]
    done = mona(place, "models", "few", "--json", "few.json")
    assert done.out.splitlines()[-1] == "wrote few.json"
    assert [m["name"] for m in json.loads((place / "few.json").read_text())["models"]] == ["few"]
    unknown = mona(place, "models", "none")
    assert unknown.code == 2 and "no model called 'none' comes with mona; there is all, few" in unknown.err


def test_doctor_lists_them_and_finds_a_damaged_one(place: Path) -> None:
    def findings(done: Done) -> list[dict[str, str]]:
        return [f for f in json.loads(done.out)["findings"] if f["part"] == "models"]

    details = [f["detail"] for f in findings(mona(place, "doctor", "--json"))]
    assert details == ["all: DSC 0.900 on 10 patients", "few: DSC 0.850 on 10 patients"]
    path = place / "mona/bundled/few.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    done = mona(place, "doctor", "--json")
    assert done.code == 1 and [f["state"] for f in findings(done)] == ["broken"]
    assert mona(place, "models").code == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "FOLDER", place)
        assert [f["state"] for f in findings(mona(place, "doctor", "--json"))] == ["missing"]
        assert "No model comes with this mona" in mona(place, "models").out
