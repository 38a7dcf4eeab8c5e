"""LiTS: numbering, scans and segmentations that are missing, and labels without geometry."""

from pathlib import Path

import numpy as np
import pytest
from helpers.dataset_cases import cases_of
from helpers.dataset_files import (
    CT,
    lits,
    mask,
    save,
    scan,
)

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.task import Intensity
from mona_train.data.adapters import adapter_named, recognise


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("folders", [("", ""), ("Training Batch 1", "media/nas/01_Datasets/CT/LITS/Training Batch 1")])
def test_lits_cases_count_from_one(tmp_path, ending, folders):
    lits(tmp_path, ending=ending, folders=folders)
    assert recognise(tmp_path).name == "lits"
    found = cases_of("lits", tmp_path)
    assert list(found) == ["case0001", "case0002", "case0011"]
    case = found["case0011"]
    assert [f.name for f in case.files] == [f"volume-10{ending}", f"segmentation-10{ending}"]
    assert case.image().modality == "CT" and np.array_equal(case.label().voxels, mask(10, (0, 1, 2)))


def test_lits_task():
    task = adapter_named("lits").task(Path())
    assert [(c.id, c.name) for c in task.classes] == [(0, "background"), (1, "liver"), (2, "tumour")]
    assert task.intensity == Intensity("window", -200, 250)
    assert (task.slices, task.size, task.image_order, task.modality) == ("inferior-superior", (256, 256), 1, "CT")


def test_lits_scans_without_segmentation_are_unlabelled(tmp_path):
    lits(tmp_path, labelled=(0,))
    save(tmp_path / "test-volume-0.nii", scan(5), CT)
    (tmp_path / "._volume-3.nii").write_bytes(b"macOS")
    found = cases_of("lits", tmp_path)
    assert {name: case.label is None for name, case in found.items()} == {
        "case0001": False, "case0002": True, "case0011": True, "test0001": True,
    }  # fmt: skip


def test_lits_segmentation_without_a_scan_says_so_when_read(tmp_path):
    lits(tmp_path, numbers=(4,))
    (tmp_path / "volume-4.nii").unlink()
    with pytest.raises(InputError, match=r"volume-4.nii does not exist"):
        cases_of("lits", tmp_path)["case0005"].image()


def test_lits_label_without_geometry_lies_on_its_scan(tmp_path):
    blank = np.eye(4)
    blank[:3, 3] = 1  # nnUNet#2751
    case = cases_of("lits", lits(tmp_path, numbers=(53,), label_affine=blank))["case0054"]
    label = on_grid_of(case.label(), case.image())
    assert np.array_equal(label.voxels, mask(53, (0, 1, 2))) and "no geometry" in label.notes[0]


@pytest.mark.parametrize("what", ["other shape", "moved"])
def test_lits_label_with_another_geometry_is_refused(tmp_path, what):
    other = CT.copy()
    other[2, 3] += 2.5  # one slice up
    lits(tmp_path, numbers=(3,), label_affine=other if what == "moved" else np.eye(4))
    if what == "other shape":
        save(tmp_path / "segmentation-3.nii", mask(3, (0, 1), (12, 10, 4)), np.eye(4))
    case = cases_of("lits", tmp_path)["case0004"]
    with pytest.raises(InputError, match=r"segmentation-3.nii and .*volume-3.nii are not on the same grid"):
        on_grid_of(case.label(), case.image())


def test_lits_scan_in_two_files_is_refused(tmp_path):
    lits(lits(tmp_path), ending=".nii.gz")
    with pytest.raises(InputError, match=r"segmentation-0.nii and .*segmentation-0.nii.gz are files for the same scan"):
        cases_of("lits", tmp_path)
