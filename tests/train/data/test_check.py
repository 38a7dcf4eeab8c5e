"""`mona data check` finds what is wrong, and names the case and the file."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.dataset_files import CT, THICK, acdc_challenge, acdc_h5, decathlon, lits, mask, mmwhs, nnunet, save, scan

from mona_infer.errors import InputError
from mona_infer.volume import Volume
from mona_train.data.adapters import adapter_named
from mona_train.data.case import Case
from mona_train.data.check import content_hash, problems


def found(name, folder):
    return list(problems(adapter_named(name), folder))


def only(name, folder):
    (problem,) = found(name, folder)
    return problem


@pytest.mark.parametrize(
    "name, write",
    [("acdc", acdc_challenge), ("lits", lits), ("mmwhs", mmwhs), ("folder", decathlon), ("folder", nnunet)],
)
def test_a_sound_dataset_has_no_problems(tmp_path, name, write):
    assert found(name, write(tmp_path)) == []


def test_notes_of_the_readers_are_told_once_for_all_cases(tmp_path):
    problem = only("acdc", acdc_h5(tmp_path))
    assert problem.severity == "warning" and "and 3 more: h5 files have no spacing" in problem.message


def test_notes_of_an_image_alone_are_told(tmp_path):
    cases = [Case("c", "c", (), lambda: Volume(scan(1), THICK, notes=("slices overlap",)), None)]
    words = [p.message for p in problems(replace(adapter_named("phantom"), cases=lambda folder: cases), tmp_path)]
    assert "c: slices overlap" in words


@pytest.mark.parametrize("off, fine", [(0.009, True), (0.02, False)])
def test_near_identical_affines_are_accepted_up_to_a_hundredth_of_a_voxel(tmp_path, off, fine):
    other = CT.copy()
    other[2, 3] += off * 2.5
    lits(tmp_path, numbers=(7,), label_affine=other)
    if fine:
        assert found("lits", tmp_path) == []
    else:
        problem = only("lits", tmp_path)
        assert problem.severity == "error" and problem.case == "case0008"
        assert problem.file.endswith("segmentation-7.nii") and "not on the same grid" in problem.message


def test_a_label_stored_the_other_way_round_is_fine(tmp_path):
    lits(tmp_path, numbers=(7,))
    turned = CT.copy()
    turned[:, 0], turned[:3, 3] = -CT[:, 0], (CT @ [11, 0, 0, 1])[:3]
    save(tmp_path / "segmentation-7.nii", mask(7, (0, 1, 2))[::-1], turned)
    assert found("lits", tmp_path) == []


def test_another_shape_is_an_error_that_names_both_files(tmp_path):
    lits(tmp_path, numbers=(7,))
    save(tmp_path / "segmentation-7.nii", mask(7, (0, 1, 2), (12, 10, 4)), CT)
    words = only("lits", tmp_path).message
    assert "segmentation-7.nii" in words and "volume-7.nii" in words and "12x10x4" in words and "12x10x5" in words


def test_ids_outside_the_task(tmp_path):
    lits(tmp_path, numbers=(7,))
    label = mask(7, (0, 1, 2))
    label[0, 0, :3] = 9
    save(tmp_path / "segmentation-7.nii", label, CT)
    problem = only("lits", tmp_path)
    assert problem.severity == "error"
    assert problem.message.endswith("segmentation-7.nii contains label id 9 in 3 voxels; the known ids are 0, 1, 2")


def test_mmwhs_ids_that_nobody_knows(tmp_path):
    mmwhs(tmp_path, numbers=(1001,), tests=(), ids=(0, 205, 99))
    problem = only("mmwhs", tmp_path)
    assert problem.severity == "error" and "ct_train_1001_label.nii.gz contains label id 99" in problem.message
    assert problem.file.endswith("_label.nii.gz")


def test_an_empty_label_and_an_empty_image(tmp_path):
    lits(tmp_path, numbers=(7,))
    save(tmp_path / "segmentation-7.nii", np.zeros((12, 10, 5), np.uint8), CT)
    save(tmp_path / "volume-7.nii", np.full((12, 10, 5), -1024, np.int16), CT)
    image, label = found("lits", tmp_path)
    assert image.message.endswith("volume-7.nii is empty: every voxel is -1024")
    assert label.message.endswith("segmentation-7.nii is an empty label: every voxel is background")
    assert {image.severity, label.severity} == {"warning"}


@pytest.mark.parametrize("labels", ["the same label", "different labels"])
def test_one_image_under_two_names(tmp_path, labels):
    acdc_challenge(tmp_path, patients=(74, 75, 76))
    for kind in ("", "_gt") if labels == "the same label" else ("",):
        copy = (tmp_path / "patient074" / f"patient074_frame01{kind}.nii.gz").read_bytes()
        (tmp_path / "patient076" / f"patient076_frame01{kind}.nii.gz").write_bytes(copy)
    problem = only("acdc", tmp_path)
    assert problem.severity == "warning" and problem.case == "patient076_frame01"
    assert f"patient076_frame01 is the same image as patient074_frame01, with {labels}" in problem.message
    assert "patient074/patient074_frame01.nii.gz" in problem.message


def test_a_patient_with_one_frame(tmp_path):
    acdc_challenge(tmp_path, info=False)
    for kind in ("", "_gt"):
        (tmp_path / "patient002" / f"patient002_frame12{kind}.nii.gz").unlink()
    problem = only("acdc", tmp_path)
    assert problem.severity == "error"
    assert "patient002 has only 1 of 2 frames:" in problem.message and "patient002_frame01.nii.gz" in problem.message


def test_a_frame_that_info_names_and_is_not_there(tmp_path):
    acdc_challenge(tmp_path)
    (tmp_path / "patient002" / "patient002_frame12.nii.gz").unlink()
    problem = only("acdc", tmp_path)
    assert problem.case == "patient002_frame02" and "patient002_frame12.nii.gz does not exist" in problem.message


def test_unreadable_files_do_not_stop_the_check(tmp_path):
    lits(tmp_path, numbers=(1, 2, 3), ending=".nii.gz")
    whole = (tmp_path / "volume-1.nii.gz").read_bytes()
    (tmp_path / "volume-1.nii.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "segmentation-3.nii.gz").write_bytes(b"no gzip")
    first, last = found("lits", tmp_path)
    assert (first.case, last.case) == ("case0002", "case0004")
    assert "volume-1.nii.gz is damaged or truncated" in first.message and first.file.endswith("volume-1.nii.gz")
    assert "segmentation-3.nii.gz" in last.message and last.file.endswith("segmentation-3.nii.gz")
    assert {first.severity, last.severity} == {"error"}


def test_an_empty_file_does_not_stop_the_check_of_a_folder(tmp_path):
    nnunet(tmp_path, names=("a", "b"))
    (tmp_path / "imagesTr" / "a_0000.nii.gz").write_bytes(b"")
    save(tmp_path / "labelsTr" / "b.nii.gz", mask(1, (0, 1, 7)))
    first, last = found("folder", tmp_path)
    assert "a_0000.nii.gz" in first.message and "contains label id 7" in last.message


def test_a_label_that_is_not_whole_numbers(tmp_path):
    lits(tmp_path, numbers=(7,))
    save(tmp_path / "segmentation-7.nii", np.full((12, 10, 5), 0.5, np.float32), CT)
    assert "segmentation-7.nii is not a label map: it holds 0.5" in only("lits", tmp_path).message


def test_voxels_that_are_not_numbers(tmp_path):
    lits(tmp_path, numbers=(7,))
    image = scan(7, dtype=np.float32)
    image[3, 3, 3], image[4, 4, 4] = np.nan, np.inf
    save(tmp_path / "volume-7.nii", image, CT)
    problem = only("lits", tmp_path)
    assert problem.severity == "error" and "volume-7.nii contains 2 voxels that are NaN or infinite" in problem.message


def test_a_single_slice(tmp_path):
    nnunet(tmp_path, names=("a",))
    save(tmp_path / "imagesTr" / "a_0000.nii.gz", scan(1, (1, 12, 10)), np.diag([10, 1.5, 1.5, 1]))
    save(tmp_path / "labelsTr" / "a.nii.gz", mask(1, (0, 1), (1, 12, 10)), np.diag([10, 1.5, 1.5, 1]))
    problem = only("folder", tmp_path)
    assert problem.severity == "warning" and problem.message.endswith("a_0000.nii.gz has a single slice")


def test_spacing_unlike_the_others(tmp_path):
    nnunet(tmp_path, names=("a", "b", "c", "d"))
    for kind, voxels in (("imagesTr/d_0000", scan(3)), ("labelsTr/d", mask(3, (0, 1)))):
        save(tmp_path / f"{kind}.nii.gz", voxels, np.diag([0.15, 0.15, 10, 1]))
    problem = only("folder", tmp_path)
    assert problem.severity == "warning" and problem.case == "d"
    assert "d_0000.nii.gz has voxels of 10 x 0.15 x 0.15 mm; the median is 10 x 1.5 x 1.5 mm" in problem.message


def test_spacing_that_no_scanner_has(tmp_path):
    nnunet(tmp_path, names=("a",))
    for kind, voxels in (("imagesTr/a_0000", scan(3)), ("labelsTr/a", mask(3, (0, 1)))):
        save(tmp_path / f"{kind}.nii.gz", voxels, np.diag([1, 1, 50, 1]))
    assert "a_0000.nii.gz has voxels of 1 x 1 x 50 mm" in only("folder", tmp_path).message


def test_nothing_labelled_and_tests_left_out(tmp_path):
    nnunet(tmp_path, names=(), unlabelled=("a", "b"), tests=("z",))
    unlabelled, no_folder, left_out = found("folder", tmp_path)
    assert no_folder.message.endswith("labelsTr does not exist; labels are expected there")
    assert unlabelled.severity == "error" and "none of the 2 cases has a label" in unlabelled.message
    assert left_out.severity == "warning" and "imagesTs has 1 scan(s) without a label" in left_out.message


def test_what_no_case_can_be_made_of_is_raised(tmp_path):
    with pytest.raises(InputError, match=r"contains no volume-N.nii"):
        found("lits", tmp_path)


def test_cases_of_one_name(tmp_path):
    lits(tmp_path, numbers=(7,))
    adapter = adapter_named("lits")
    twice = replace(adapter, cases=lambda folder: [*adapter.cases(folder), *adapter.cases(folder)])
    words = [p.message for p in problems(twice, tmp_path)]
    assert any("2 cases are named case0008" in w and "volume-7.nii" in w for w in words)


def test_no_more_than_two_cases_are_read_at_a_time():
    adapter, held, most = adapter_named("phantom"), [], []
    lock = threading.Lock()

    def image(n):
        with lock:
            held.append(n)
            most.append(len(held))
        try:
            threading.Event().wait(0.005)
            return Volume(np.full((4, 4, 3), n), THICK)
        finally:
            with lock:
                held.remove(n)

    cases = [Case(f"c{n}", f"c{n}", (), lambda n=n: image(n), None) for n in range(12)]
    list(problems(replace(adapter, cases=lambda folder: cases), Path()))
    assert max(most) <= 2 and len(most) == 12


def test_content_hash_knows_voxels_not_how_they_are_stored():
    voxels = scan(1)
    one = content_hash(Volume(voxels, THICK))
    assert content_hash(Volume(voxels.astype(np.float64), CT)) == one
    assert content_hash(Volume(np.asfortranarray(voxels), THICK)) == one
    assert content_hash(Volume((voxels - 8).astype(">i4"), THICK, intercept=8.0)) == one
    assert content_hash(Volume(voxels.reshape((10, 12, 5), order="F"), THICK)) != one
    voxels[0, 0, 0] += 1
    assert content_hash(Volume(voxels, THICK)) != one
    assert content_hash(Volume(np.full((2, 2, 2), -0.0), THICK)) == content_hash(Volume(np.zeros((2, 2, 2)), THICK))


def test_a_class_that_no_label_holds(tmp_path):
    decathlon(tmp_path)
    for n in (1, 2):
        save(tmp_path / "labelsTr" / f"liver_{n}.nii.gz", mask(n, (0, 1)))
    problem = only("folder", tmp_path)
    assert problem.severity == "warning"
    assert problem.message.endswith("none of the 2 labels contains cancer (id 2), so it cannot be learned")


def test_one_label_for_two_scans_and_a_label_in_the_place_of_a_scan(tmp_path):
    nnunet(tmp_path, names=("a", "b", "c"))
    (tmp_path / "labelsTr/b.nii.gz").write_bytes((tmp_path / "labelsTr/a.nii.gz").read_bytes())
    (tmp_path / "imagesTr/c_0000.nii.gz").write_bytes((tmp_path / "labelsTr/c.nii.gz").read_bytes())
    same, copied = found("folder", tmp_path)
    assert "c: image and label are the same" in same.message and same.severity == "error"
    assert "b and a have the same label for two different images" in copied.message and copied.severity == "warning"


def test_a_scan_in_another_plane(tmp_path):
    nnunet(tmp_path, names=("a", "b", "c"))
    sagittal = np.diag([10.0, 1.5, 1.5, 1.0])
    for kind, voxels in (("imagesTr/b_0000", scan(1)), ("labelsTr/b", mask(1, (0, 1)))):
        save(tmp_path / f"{kind}.nii.gz", voxels, sagittal)
    problem = only("folder", tmp_path)
    assert problem.severity == "warning" and problem.case == "b"
    assert "sliced along left-right (voxels of 10 x 1.5 x 1.5 mm, slice axis first), but 2 others" in problem.message


def test_oblique_stacks_are_not_compared_by_plane(tmp_path):
    nnunet(tmp_path, names=("a", "b"))
    turned = np.eye(4)
    turned[:3, :3] = np.array([[1, 0, 0], [0, 0.6, 0.8], [0, -0.8, 0.6]]) @ np.diag([1.5, 1.5, 10])
    for kind, voxels in (("imagesTr/b_0000", scan(1)), ("labelsTr/b", mask(1, (0, 1)))):
        save(tmp_path / f"{kind}.nii.gz", voxels, turned)
    assert found("folder", tmp_path) == []
