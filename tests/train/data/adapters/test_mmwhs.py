"""MM-WHS, CT and MR: classes from the published ids, and ids that are not among them."""

import numpy as np
import pytest
from helpers.dataset_cases import cases_of
from helpers.dataset_files import (
    mask,
    mmwhs,
)

from mona_infer.errors import InputError
from mona_train.data.adapters import adapter_named, locate, recognise


@pytest.mark.parametrize(
    "kind, name, modality, rule", [("ct", "mmwhs", "CT", "percentile"), ("mr", "mmwhs-mr", "MR", "minmax")]
)
def test_mmwhs(tmp_path, kind, name, modality, rule):
    mmwhs(tmp_path / "inner", kind)
    adapter = recognise(tmp_path)
    assert adapter.name == name
    task = adapter.task(tmp_path)
    assert [c.name for c in task.classes] == ["background", "Myo", "LA", "LV", "RA", "RV", "AAo", "PA"]
    assert [c.id for c in task.classes] == list(range(8))
    assert (task.name, task.modality, task.intensity.rule, task.size) == (name, modality, rule, (256, 256))
    assert task.slices == "inferior-superior"
    found = cases_of(name, tmp_path)
    assert {n: case.label is None for n, case in found.items()} == {
        f"{kind}_test_2001": True, f"{kind}_train_1001": False, f"{kind}_train_1002": False,
    }  # fmt: skip
    label = found[f"{kind}_train_1001"].label()
    raw = mask(1001, (0, 205, 420, 500, 550, 600, 820, 850), dtype=np.int16)
    assert label.voxels.dtype == np.uint8 and label.notes == ()
    for new, old in enumerate((0, 205, 420, 500, 550, 600, 820, 850)):
        assert np.array_equal(label.voxels == new, raw == old)


def test_mmwhs_mistyped_id_is_the_left_atrium(tmp_path):
    mmwhs(tmp_path, "mr", ids=(0, 420, 421))
    label = cases_of("mmwhs-mr", tmp_path)["mr_train_1001"].label()
    assert set(np.unique(label.voxels)) == {0, 2} and label.notes == ("label id 421 is read as 420",)


def test_mmwhs_unknown_id_is_refused_by_file_and_id(tmp_path):
    mmwhs(tmp_path, ids=(0, 205, 7, 422))
    with pytest.raises(
        InputError, match=r"ct_train_1001_label.nii.gz contains label id 7, 422; MM-WHS has 0, 205, 420"
    ):
        cases_of("mmwhs", tmp_path)["ct_train_1001"].label()


def test_mmwhs_of_both_kinds_has_to_be_told_apart(tmp_path):
    mmwhs(mmwhs(tmp_path), "mr")
    with pytest.raises(InputError, match=r"as mmwhs or as mmwhs-mr; choose one, e\.g\. --dataset mmwhs --data"):
        recognise(tmp_path)
    assert locate("mmwhs-mr", tmp_path) == (adapter_named("mmwhs-mr"), tmp_path)
    assert len(cases_of("mmwhs-mr", tmp_path)) == 3
