"""Folders with a dataset.json, of the Decathlon and of nnU-Net; what cannot be used is refused by name."""

import numpy as np
import pytest
from helpers.dataset_cases import cases_of
from helpers.dataset_files import (
    SHAPE,
    THICK,
    decathlon,
    mask,
    nnunet,
    save,
    scan,
)

from mona_infer.errors import InputError
from mona_infer.task import Intensity
from mona_train.data.adapters import adapter_named, recognise


def test_decathlon(tmp_path):
    decathlon(tmp_path, unlabelled=("liver_9",), tests=("liver_7",))
    adapter = recognise(tmp_path)
    assert adapter.name == "folder"
    task = adapter.task(tmp_path)
    assert [(c.id, c.name) for c in task.classes] == [(0, "background"), (1, "liver"), (2, "cancer")]
    assert len({c.colour for c in task.classes}) == 3
    assert (task.name, task.modality, task.intensity) == ("Liver", "CT", Intensity("percentile", 0.5, 99.5))
    assert (task.slices, task.fallback, task.size, task.image_order) == ("stack", "inferior-superior", (64, 64), 1)
    found = cases_of("folder", tmp_path)
    assert {n: (case.label is None, case.part) for n, case in found.items()} == {
        "liver_1": (False, None), "liver_2": (False, None), "liver_9": (True, None),
    }  # fmt: skip
    assert np.array_equal(found["liver_2"].image().voxels, scan(1))
    assert np.array_equal(found["liver_2"].label().voxels, mask(1, (0, 1, 2)))
    assert adapter.remarks(tmp_path) == [
        f"{tmp_path / 'imagesTs'} has 1 scan(s) without a label in labelsTs; they are not used"
    ]


@pytest.mark.parametrize("ending", [".nii.gz", ".nii", ".nrrd", ".mha"])
def test_nnunet(tmp_path, ending):
    nnunet(tmp_path, unlabelled=("la_009",), tests=("la_020", "la_021"), test_labels=("la_021",), ending=ending)
    save(tmp_path / "imagesUn" / f"la_030_0000{ending}", scan(30))
    task = adapter_named("folder").task(tmp_path)
    assert [(c.id, c.name) for c in task.classes] == [(0, "background"), (1, "left atrium")]
    assert (task.modality, task.intensity) == ("MR", Intensity())
    found = cases_of("folder", tmp_path)
    assert {n: (case.label is None, case.part) for n, case in found.items()} == {
        "la_003": (False, None), "la_004": (False, None), "la_009": (True, None), "la_030": (True, None),
        "la_021": (False, "test"),
    }  # fmt: skip
    assert [f.name for f in found["la_021"].files] == [f"la_021_0000{ending}", f"la_021{ending}"]
    assert "1 scan(s) without a label" in adapter_named("folder").remarks(tmp_path)[0]


def test_decathlon_names_may_end_in_four_digits(tmp_path):
    decathlon(tmp_path, names=("scan_0000", "scan_0001"), unlabelled=("scan_0002",))
    found = cases_of("folder", tmp_path)
    assert {n: case.label is None for n, case in found.items()} == {
        "scan_0000": False, "scan_0001": False, "scan_0002": True,
    }  # fmt: skip


def test_a_label_of_its_own_tells_a_case_from_a_channel(tmp_path):
    decathlon(tmp_path, names=("scan", "scan_0001"), training=[])
    assert all(case.label for case in cases_of("folder", tmp_path).values())


def test_first_version_of_nnunet_lists_cases_not_files(tmp_path):
    decathlon(tmp_path, names=("a_1", "a_2"))
    for name in ("a_1", "a_2"):
        (tmp_path / "imagesTr" / f"{name}.nii.gz").rename(tmp_path / "imagesTr" / f"{name}_0000.nii.gz")
    found = cases_of("folder", tmp_path)
    assert list(found) == ["a_1", "a_2"] and all(case.label and len(case.files) == 2 for case in found.values())
    save(tmp_path / "imagesTr" / "a_1_0001.nii.gz", scan(1))
    with pytest.raises(InputError, match=r"a_1_0001.nii.gz is another channel of a_1"):
        cases_of("folder", tmp_path)


def test_listed_label_may_have_a_name_of_its_own(tmp_path):
    nnunet(tmp_path, training=[{"image": "imagesTr/la_003_0000.nii.gz", "label": "labelsTr/left.nii.gz"}])
    (tmp_path / "labelsTr" / "la_003.nii.gz").rename(tmp_path / "labelsTr" / "left.nii.gz")
    assert cases_of("folder", tmp_path)["la_003"].files[1].name == "left.nii.gz"


def test_listed_scan_that_is_missing_says_so_when_read_and_a_missing_label_is_none(tmp_path):
    decathlon(tmp_path)
    (tmp_path / "imagesTr" / "liver_1.nii.gz").unlink()
    (tmp_path / "labelsTr" / "liver_2.nii.gz").unlink()
    found = cases_of("folder", tmp_path)
    assert found["liver_2"].label is None
    with pytest.raises(InputError, match=r"imagesTr/liver_1.nii.gz does not exist"):
        found["liver_1"].image()


@pytest.mark.parametrize(
    "more, words",
    [
        ({"channel_names": {"0": "FLAIR", "1": "T1w"}}, r"dataset.json has 2 channels \(FLAIR, T1w\)"),
        ({"labels": {"background": 0, "whole": [1, 2]}}, r"'whole' is a region of ids \[1, 2\]"),
        ({"labels": {"background": 0, "a": 1, "ignore": 2}}, r"has an ignore label \(2\)"),
        ({"labels": {"a": 1, "b": 2}}, r"expected a background with id 0 .* found ids \[1, 2\]"),
        ({"labels": {"background": 0}}, "at least one other class"),
        ({"labels": {"background": 0, "a": -1}}, "found 'a'"),
        ({"labels": {"background": 0, "a": True}}, "found 'a'"),
        ({"labels": {"background": 0, "a": 1, "b": 1}}, "found 'b'"),
        ({"labels": ["background", "a"]}, "expected an object with labels"),
        ({"file_ending": ".png"}, r"has file_ending '.png', which mona cannot train on; convert"),
        ({"training": [{"image": "../../etc/x.nii.gz"}]}, r"lists '../../etc/x.nii.gz', which is outside"),
        ({"training": [{"image": "/etc/x_0000.nii.gz"}]}, r"lists '/etc/x_0000.nii.gz', which is outside"),
        ({"training": [{"image": "imagesTr\\..\\..\\x.nii.gz"}]}, "which is outside"),
        ({"training": [{"image": "imagesTr/la_003_0000.nii.gz", "label": "../l.nii.gz"}]}, "which is outside"),
        ({"test": ["../x_0000.nii.gz"]}, "which is outside"),
        ({"training": [{"label": "x"}]}, "expected the path of a scan, found None"),
    ],
)
def test_dataset_json_that_cannot_be_used_is_refused_in_words(tmp_path, more, words):
    nnunet(tmp_path, **more)
    with pytest.raises(InputError, match=words):
        cases_of("folder", tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "\xff\xfe", "[" * 100_000])
def test_dataset_json_that_is_not_json(tmp_path, text):
    (nnunet(tmp_path) / "dataset.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"dataset.json(:| is not JSON)"):
        cases_of("folder", tmp_path)


def test_a_second_channel_is_refused_by_name(tmp_path):
    save(nnunet(tmp_path) / "imagesTr" / "la_003_0001.nii.gz", scan(1))
    with pytest.raises(InputError, match=r"la_003_0001.nii.gz is another channel of la_003"):
        cases_of("folder", tmp_path)


def test_a_nnunet_scan_without_channel_number_is_refused(tmp_path):
    save(nnunet(tmp_path) / "imagesTr" / "extra.nii.gz", scan(1))
    with pytest.raises(InputError, match=r"extra.nii.gz: expected a name like CASE_0000.nii.gz"):
        cases_of("folder", tmp_path)


def test_a_four_dimensional_scan_is_refused_by_name(tmp_path):
    decathlon(tmp_path)
    save(tmp_path / "imagesTr" / "liver_1.nii.gz", np.zeros((*SHAPE, 4), np.int16))
    with pytest.raises(InputError, match=r"liver_1.nii.gz has 4 channels or frames"):
        cases_of("folder", tmp_path)["liver_1"].image()
    with pytest.raises(InputError, match=r"liver_1.nii.gz has 4 channels or frames"):
        adapter_named("folder").task(tmp_path)


def test_a_scan_that_is_both_training_and_test_is_refused(tmp_path):
    nnunet(tmp_path, tests=("la_003",), test_labels=("la_003",))
    with pytest.raises(InputError, match="la_003 is the name of a training scan and of a test scan"):
        cases_of("folder", tmp_path)


def test_a_folder_without_scans_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has a dataset.json but no scans"):
        cases_of("folder", nnunet(tmp_path, names=()))


@pytest.mark.parametrize(
    "names, patients",
    [
        (("p1_frame01", "p1_frame12", "p2_frame01"), ("p1", "p1", "p2")),
        (("a_ED", "a_ES", "b_ED"), ("a", "a", "b")),
        (("s_1_tp1", "s_1_tp2", "s_2"), ("s_1", "s_1", "s_2")),
        (("x_t0", "x_visit2", "y-t3"), ("x", "x", "y")),
        (("sub-01_ses-1", "sub-01_ses-2", "sub-02_ses-1"), ("sub-01", "sub-01", "sub-02")),
        (("liver_1", "liver_2", "liver_12"), ("liver_1", "liver_2", "liver_12")),
        (("brain_t1", "brain_t2", "brain_t3"), ("brain_t1", "brain_t2", "brain_t3")),  # numbers, not times
    ],
)
def test_frames_of_one_patient_belong_together(tmp_path, names, patients):
    found = cases_of("folder", nnunet(tmp_path, names=names))
    assert [found[name].patient for name in names] == list(patients)


@pytest.mark.parametrize(
    "shape, affine, size",
    [
        ((20, 30, 6), THICK, 64),
        ((70, 97, 6), THICK, 128),
        ((6, 97, 96), np.diag([10, 1.5, 1.5, 1]), 128),  # the thick axis is stored first
        ((96, 64, 200), np.eye(4), 96),  # no thick axis: inferior-superior
        ((300, 40, 3), THICK, 256),
    ],
)
def test_size_follows_the_scans(tmp_path, shape, affine, size):
    nnunet(tmp_path, names=("a", "b", "c"))
    for name in ("a", "b"):
        save(tmp_path / "imagesTr" / f"{name}_0000.nii.gz", np.zeros(shape, np.int16), affine)
    assert adapter_named("folder").task(tmp_path).size == (size, size)


def test_a_task_name_cannot_leave_its_folder(tmp_path):
    assert adapter_named("folder").task(nnunet(tmp_path, name="../../My set")).name == "My-set"
