"""Each dataset is read from its raw layout; what cannot be read is refused in words that name the file."""

import importlib.util
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers.dataset_files import (
    CT,
    SHAPE,
    THICK,
    acdc_challenge,
    acdc_h5,
    decathlon,
    lits,
    mask,
    mmwhs,
    nnunet,
    save,
    save_as_acdc,
    scan,
)

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import Intensity
from mona_train.data import adapters
from mona_train.data.adapters import adapter_named, locate, names, recognise
from mona_train.data.adapters.reading import files_below
from mona_train.phantom import heart, phantom

SHARED = Path(__file__).parents[3] / "shared" / "data"


def cases_of(name, folder):
    return {case.name: case for case in adapter_named(name).cases(folder)}


def slices_of(case, task):
    """Image and label as the network's slices, at native size."""
    image = case.image()
    stack = SliceStack(image, task)
    view = stack.slicing.view(image.voxels)
    grey = (image.intensities(view) - stack.low) / (stack.high - stack.low)
    return grey, stack.slicing.view(on_grid_of(case.label(), image).voxels)


# ACDC


def test_acdc_frames_are_renumbered_as_in_the_published_lists(tmp_path):
    found = cases_of("acdc", acdc_challenge(tmp_path, frames=(1, 12)))
    assert list(found) == [f"patient{p:03d}_frame{f:02d}" for p in (1, 2) for f in (1, 2)]
    assert {case.patient for case in found.values()} == {"patient001", "patient002"}
    es = found["patient002_frame02"]
    assert [f.name for f in es.files] == ["patient002_frame12.nii.gz", "patient002_frame12_gt.nii.gz"]
    assert np.array_equal(es.image().voxels, scan([2, 1])) and es.image().modality == "MR"
    assert np.array_equal(es.label().voxels, mask(21))


def test_acdc_info_decides_even_when_es_comes_first(tmp_path):
    found = cases_of("acdc", acdc_challenge(tmp_path, patients=(7,), frames=(11, 3)))
    assert found["patient007_frame01"].files[0].name == "patient007_frame11.nii.gz"
    assert found["patient007_frame02"].files[0].name == "patient007_frame03.nii.gz"


def test_acdc_without_info_takes_frames_by_number(tmp_path):
    found = cases_of("acdc", acdc_challenge(tmp_path, patients=(7,), frames=(14, 4), info=False))
    assert found["patient007_frame01"].files[0].name == "patient007_frame04.nii.gz"
    assert found["patient007_frame02"].files[0].name == "patient007_frame14.nii.gz"


def test_acdc_with_three_frames_and_no_info_is_refused(tmp_path):
    acdc_challenge(tmp_path, patients=(7,), frames=(4, 14, 20), info=False)
    with pytest.raises(InputError, match=r"patient007 has frames \[4, 14, 20\] and no Info.cfg"):
        cases_of("acdc", tmp_path)


@pytest.mark.parametrize("below", ["training", "database/training", "x/testing"])
def test_acdc_is_found_below_other_folders(tmp_path, below):
    acdc_challenge(tmp_path / below, patients=(101,))
    assert recognise(tmp_path).name == "acdc"
    found = cases_of("acdc", tmp_path)
    assert len(found) == 2
    assert {case.part for case in found.values()} == {"test" if "testing" in below else None}


def test_acdc_part_does_not_depend_on_where_the_dataset_lies(tmp_path):
    found = cases_of("acdc", acdc_challenge(tmp_path / "testing"))
    assert {case.part for case in found.values()} == {None}


def test_acdc_frames_without_ground_truth_are_unlabelled(tmp_path):
    found = cases_of("acdc", acdc_challenge(tmp_path, labels=False))
    assert all(case.label is None and len(case.files) == 1 for case in found.values())


def test_acdc_frame_that_info_names_and_is_not_there(tmp_path):
    acdc_challenge(tmp_path, patients=(5,))
    (tmp_path / "patient005" / "patient005_frame12.nii.gz").unlink()
    case = cases_of("acdc", tmp_path)["patient005_frame02"]
    assert [f.name for f in case.files] == ["patient005_frame12_gt.nii.gz"]
    with pytest.raises(InputError, match=r"patient005_frame12.nii.gz does not exist"):
        case.image()


def test_acdc_spacing_comes_from_pixdim_where_the_matrix_has_no_scale(tmp_path):
    plain = cases_of("acdc", acdc_challenge(tmp_path / "plain"))["patient001_frame01"]
    assert plain.image().notes == () and plain.image().spacing == (1.5, 1.5, 10.0)
    odd = cases_of("acdc", acdc_challenge(tmp_path / "odd", write=save_as_acdc))["patient001_frame01"]
    raw = nib.load(odd.files[0])
    assert np.array_equal(np.diag(raw.affine), [-1, -1, 1, 1])  # the generator writes what the challenge has
    assert odd.image().spacing == pytest.approx((1.5, 1.5, 10.0))
    assert np.sign(np.diag(odd.image().affine)).tolist() == [-1, -1, 1, 1]
    assert "pixdim" in odd.image().notes[0]
    on_grid_of(odd.label(), odd.image())


def test_both_layouts_of_acdc_give_the_same_slices(tmp_path):
    adapter = adapter_named("acdc")
    layouts = [acdc_challenge(tmp_path / "nifti"), acdc_h5(tmp_path / "h5"), acdc_h5(tmp_path / "cut", volumes=False)]
    assert all(recognise(folder) is adapter for folder in layouts)
    first, *others = (cases_of("acdc", folder) for folder in layouts)
    for other in others:
        assert list(other) == list(first)
        for name in first:
            image, label = slices_of(first[name], adapter.task(tmp_path))
            same_image, same_label = slices_of(other[name], adapter.task(tmp_path))
            assert label.tobytes() == same_label.tobytes() and label.shape == (5, 10, 12)
            assert np.abs(image - same_image).max() < 1e-6


def test_acdc_h5_tells_its_parts_and_that_millimetres_are_nominal(tmp_path):
    found = cases_of("acdc", acdc_h5(tmp_path))
    assert [case.part for case in found.values()] == ["train", "train", "val", "val"]
    volume = found["patient001_frame01"].image()
    assert volume.spacing == (1.5, 1.5, 10.0) and "nominal" in volume.notes[0]
    assert volume.voxels.dtype == np.float32 and volume.modality == "MR"


@pytest.mark.parametrize("first", [0, 1])
def test_acdc_slices_are_put_together_by_number(tmp_path, first):
    h5py = pytest.importorskip("h5py", reason="h5py, of the extra `train`, is not installed")
    folder = tmp_path / "data" / "slices"
    folder.mkdir(parents=True)
    for n in range(12):
        with h5py.File(folder / f"patient001_frame01_slice_{n + first}.h5", "w") as file:
            file["image"], file["label"] = np.full((3, 4), n / 11, np.float32), np.full((3, 4), n % 4, np.uint8)
    case = cases_of("acdc", tmp_path)["patient001_frame01"]
    assert len(case.files) == 12
    assert np.rint(case.image().voxels[0, 0] * 11).tolist() == list(range(12))
    for lost, left in ((9, 11), (1, 10)):
        (folder / f"patient001_frame01_slice_{lost}.h5").unlink()
        case = cases_of("acdc", tmp_path)["patient001_frame01"]
        with pytest.raises(InputError, match=rf"of patient001_frame01, slice {lost} is missing \({left} are there\)"):
            case.image()


def test_acdc_h5_that_cannot_be_used(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py, of the extra `train`, is not installed")
    folder = acdc_h5(tmp_path, slices=False)
    data = folder / "data"
    (data / "patient001_frame01.h5").write_bytes(b"not hdf5 at all")
    with h5py.File(data / "patient001_frame02.h5", "w") as file:
        file["image"] = np.zeros((2, 3, 4), np.float32)
    with h5py.File(data / "patient002_frame01.h5", "w") as file:
        file["image"], file["label"] = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.uint8)
    with h5py.File(data / "patient002_frame02.h5", "w") as file:
        file["image"], file["label"] = h5py.ExternalLink("/etc/passwd", "x"), np.full((2, 3, 4), 0.5)
    broken, no_label, flat, linked = cases_of("acdc", folder).values()
    for read, words in [
        (broken.image, r"patient001_frame01.h5 is damaged or not HDF5"),
        (no_label.label, r"patient001_frame02.h5 holds no dataset 'label', found \['image'\]"),
        (flat.image, r"patient002_frame01.h5: expected image as \[z, y, x\], found shapes \[\(3, 4\)\]"),
        (linked.image, r"patient002_frame02.h5 holds no dataset 'image'"),
        (linked.label, r"patient002_frame02.h5 is not a label map: it holds 0.5"),
    ]:
        with pytest.raises(InputError, match=words):
            read()


def test_acdc_in_both_layouts_or_twice_is_refused(tmp_path):
    acdc_h5(acdc_challenge(tmp_path))
    with pytest.raises(InputError, match="both layouts"):
        cases_of("acdc", tmp_path)
    for below in ("a", "b"):
        acdc_challenge(tmp_path / "twice" / below)
    with pytest.raises(InputError, match=r"a/patient001/patient001_frame01.nii.gz and .*b/patient001/.* remove one"):
        cases_of("acdc", tmp_path / "twice")


def test_acdc_in_the_form_of_nnunet_is_a_folder(tmp_path):
    nnunet(tmp_path, names=("patient001_frame01", "patient001_frame12", "patient002_frame01"))
    assert recognise(tmp_path).name == "folder"
    assert [case.patient for case in cases_of("folder", tmp_path).values()] == ["patient001"] * 2 + ["patient002"]


# LiTS


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
    with pytest.raises(InputError, match=r"segmentation-0.nii and .*segmentation-0.nii.gz are both there"):
        cases_of("lits", tmp_path)


def test_hidden_files_and_folders_are_not_looked_at(tmp_path):
    for name in ("a.nii", "._a.nii", ".trash/b.nii", "__MACOSX/c.nii", "x/d.nii"):
        save(tmp_path / name, scan(1))
    assert [path.name for path in files_below(tmp_path)] == ["a.nii", "d.nii"]


def test_files_are_found_through_links_that_may_lead_in_circles(tmp_path):
    lits(tmp_path / "disk")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "here").symlink_to(tmp_path / "disk", target_is_directory=True)
    (tmp_path / "disk" / "up").symlink_to(tmp_path / "data", target_is_directory=True)
    assert len(cases_of("lits", tmp_path / "data")) == 3


# MM-WHS


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
    with pytest.raises(InputError, match=r"ct_train_1001_label.nii.gz holds label id 7, 422; MM-WHS has 0, 205, 420"):
        cases_of("mmwhs", tmp_path)["ct_train_1001"].label()


def test_mmwhs_of_both_kinds_has_to_be_told_apart(tmp_path):
    mmwhs(mmwhs(tmp_path), "mr")
    with pytest.raises(InputError, match="as mmwhs or as mmwhs-mr; say which with --dataset mmwhs --data"):
        recognise(tmp_path)
    assert locate("mmwhs-mr", tmp_path) == (adapter_named("mmwhs-mr"), tmp_path)
    assert len(cases_of("mmwhs-mr", tmp_path)) == 3


# Folders with a dataset.json


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
        f"{tmp_path / 'imagesTs'} has 1 scans without a label in labelsTs; they are not used"
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
    assert "1 scans without a label" in adapter_named("folder").remarks(tmp_path)[0]


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
        ({"labels": {"background": 0}}, "one class or more"),
        ({"labels": {"background": 0, "a": -1}}, "found 'a'"),
        ({"labels": {"background": 0, "a": True}}, "found 'a'"),
        ({"labels": {"background": 0, "a": 1, "b": 1}}, "found 'b'"),
        ({"labels": ["background", "a"]}, "expected an object with labels"),
        ({"file_ending": ".png"}, r"says file_ending '.png'; convert"),
        ({"training": [{"image": "../../etc/x.nii.gz"}]}, r"lists '../../etc/x.nii.gz', which is not inside"),
        ({"training": [{"image": "/etc/x_0000.nii.gz"}]}, r"lists '/etc/x_0000.nii.gz', which is not inside"),
        ({"training": [{"image": "imagesTr\\..\\..\\x.nii.gz"}]}, "not inside"),
        ({"training": [{"image": "imagesTr/la_003_0000.nii.gz", "label": "../l.nii.gz"}]}, "not inside"),
        ({"test": ["../x_0000.nii.gz"]}, "not inside"),
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
    with pytest.raises(InputError, match="la_003 is both a training and a test scan"):
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


# The phantom


def test_phantom_is_the_embedded_one():
    adapter, folder = locate("phantom")
    found = adapter.cases(folder)
    assert len(found) == 72 and len({case.name for case in found}) == 72 and all(case.files == () for case in found)
    case, wanted = found[1], heart(1, "ES")
    assert (case.name, case.patient, case.part) == (wanted.name, wanted.patient, wanted.split)
    assert case.image().voxels.tobytes() == wanted.image.voxels.tobytes()
    assert case.label().voxels.tobytes() == wanted.label.voxels.tobytes()


def test_phantom_parts_are_those_of_its_split():
    import inspect

    sizes = {name: p.default for name, p in inspect.signature(phantom).parameters.items() if name != "seed"}
    parts = {}
    for case in adapter_named("phantom").cases(Path("anything")):
        parts.setdefault(case.part, set()).add(case.patient)
    assert {part: len(patients) for part, patients in parts.items()} == sizes
    assert max(parts["train"]) < min(parts["val"]) < min(parts["test"])


# Finding adapters and data


def test_names_are_found_by_themselves():
    assert names() == ["acdc", "folder", "lits", "mmwhs", "mmwhs-mr", "phantom"]


def test_a_module_dropped_in_is_a_dataset(tmp_path, monkeypatch):
    (tmp_path / "kidney.py").write_text(
        "from dataclasses import replace\n"
        "from mona_train.data.adapters.phantom import ADAPTER as PHANTOM\n"
        "ADAPTER = replace(PHANTOM, name='kidney', layout='kidney/x', recognises=lambda f: f.name == 'kidney')\n"
    )
    monkeypatch.setattr(adapters, "__path__", [*adapters.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mona_train.data.adapters.kidney", raising=False)
    try:
        assert "kidney" in names() and adapter_named("kidney").name == "kidney"
        (tmp_path / "kidney").mkdir()
        assert recognise(tmp_path / "kidney").name == "kidney"
    finally:
        sys.modules.pop("mona_train.data.adapters.kidney", None)


@pytest.mark.parametrize(
    "typed, meant", [("adcd", "acdc"), ("ACDC", "acdc"), ("mmwhs_mr", "mmwhs-mr"), ("litz", "lits")]
)
def test_an_unknown_name_gets_the_nearest(typed, meant):
    with pytest.raises(
        InputError, match=f"no dataset is called '{typed}'; did you mean {meant}\\?.*acdc, folder, lits"
    ):
        adapter_named(typed)


def test_every_adapter_says_where_to_get_its_data():
    for adapter in adapters.adapters().values():
        assert adapter.title and adapter.source and adapter.licence
        assert "\n" not in adapter.layout + adapter.source + adapter.licence


def test_missing_data_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MONA_DATA", str(tmp_path / "all"))
    lits(tmp_path / "data" / "acdc")  # there, but something else
    with pytest.raises(InputError) as error:
        locate("acdc")
    text = str(error.value)
    assert "\n" not in text and "https://" in text and "CC BY-NC-SA 4.0" in text
    assert "patient001_frame01_gt.nii.gz" in text
    assert f"{tmp_path / 'all' / 'acdc'} (not there), data/acdc (not laid out like that)" in text
    with pytest.raises(InputError, match=r"Looked in: nowhere \(not there\)$"):
        locate("lits", Path("nowhere"))


def test_data_is_looked_for_where_it_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_DATA", raising=False)
    adapter = adapter_named("lits")
    lits(tmp_path / "lits")
    assert locate("lits") == (adapter, Path("lits"))
    lits(tmp_path / "data" / "lits")
    assert locate("lits") == (adapter, Path("data/lits"))
    lits(tmp_path / "all" / "lits")
    monkeypatch.setenv("MONA_DATA", str(tmp_path / "all"))
    assert locate("lits") == (adapter, tmp_path / "all" / "lits")
    assert locate("lits", Path("data/lits")) == (adapter, Path("data/lits"))


def test_a_path_is_itself_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnunet(tmp_path / "Dataset004_Heart")
    mmwhs(tmp_path / "x" / "hearts")
    assert locate("Dataset004_Heart") == (adapter_named("folder"), Path("Dataset004_Heart"))
    assert locate("./x/hearts") == (adapter_named("mmwhs"), Path("x/hearts"))
    with pytest.raises(InputError, match=r"^no/such is not a folder$"):
        locate("no/such")
    with pytest.raises(InputError, match="no dataset is called 'nothing'"):
        locate("nothing")


def test_a_folder_like_nothing_known_is_told_how_to_look(tmp_path):
    with pytest.raises(InputError, match=r"not laid out like any known dataset \(acdc, .*dataset.json, imagesTr/"):
        recognise(tmp_path)


# Real data


@pytest.fixture(scope="module")
def real_acdc(tmp_path_factory):
    """Three patients of the real ACDC, written in both layouts by the program that comes with it."""
    pytest.importorskip("h5py", reason="h5py, of the extra `train`, is not installed")
    program = SHARED / "acdc" / "unpack.py"
    if not program.exists():
        pytest.skip(f"{program} is absent: no real ACDC to compare the layouts on")
    spec = importlib.util.spec_from_file_location("unpack", program)
    unpack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unpack)
    wanted = ("patient002_", "patient038_", "patient099_")

    class Few:
        """The archive, as if only these patients were in it."""

        def __init__(self, archive):
            self.archive, self.read = archive, archive.read

        def namelist(self):
            return [n for n in self.archive.namelist() if n.rsplit("/", 1)[-1].startswith(wanted)]

    root = tmp_path_factory.mktemp("acdc")
    with zipfile.ZipFile(unpack.ARCHIVE) as archive:
        unpack.write_ssl4mis(root / "h5", Few(archive))
        unpack.write_challenge(root / "nifti", Few(archive))
    return root


@pytest.mark.parametrize("layout", ["volumes", "slices"])
def test_real_acdc_is_the_same_in_both_layouts(real_acdc, layout, tmp_path):
    adapter = adapter_named("acdc")
    h5 = real_acdc / "h5"
    if layout == "slices":
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "slices").symlink_to(h5 / "data" / "slices", target_is_directory=True)
        h5 = tmp_path
    nifti, other = cases_of("acdc", real_acdc / "nifti"), cases_of("acdc", h5)
    people = ("002", "038", "099") if layout == "volumes" else ("038", "099")  # slices of validation are not written
    assert list(other) == [f"patient{p}_frame0{f}" for p in people for f in (1, 2)]
    for name, case in other.items():
        assert np.array_equal(nifti[name].label().voxels, case.label().voxels)
        image, label = slices_of(nifti[name], adapter.task(h5))
        same_image, same_label = slices_of(case, adapter.task(h5))
        assert label.tobytes() == same_label.tobytes() and set(np.unique(label)) == {0, 1, 2, 3}
        assert np.abs(image - same_image).max() <= 1 / 255
        sizes = [len(SliceStack(c.image(), adapter.task(h5))) for c in (nifti[name], case)]
        assert sizes[0] == sizes[1] == (16 if "099" in name else 8 if "038" in name else sizes[0])
    if layout == "volumes":
        assert [case.part for case in other.values()] == ["val"] * 2 + ["train"] * 4


def test_real_hippocampus_needs_no_configuration(tmp_path):
    archive = SHARED / "hippocampus" / "Task04_Hippocampus.tar"
    if not archive.exists():
        pytest.skip(f"{archive} is absent: no real Decathlon folder to read")
    with tarfile.open(archive) as tar:
        wanted = ("dataset.json", "_001.nii.gz", "_003.nii.gz", "_004.nii.gz")
        tar.extractall(tmp_path, [m for m in tar if m.name.endswith(wanted)], filter="data")
    folder = tmp_path / "Task04_Hippocampus"
    about = json.loads((folder / "dataset.json").read_text())
    about["training"] = about["training"][:3]
    (folder / "dataset.json").write_text(json.dumps(about))
    adapter, found = locate(str(folder))
    task, (case, *_) = adapter.task(found), adapter.cases(found)
    assert (adapter.name, task.name, task.modality, task.size) == ("folder", "Hippocampus", "MR", (64, 64))
    assert [c.name for c in task.classes] == ["background", "Anterior", "Posterior"]
    assert len(adapter.cases(found)) == 3
    image, label = slices_of(case, task)
    assert image.shape == label.shape and image.min() == 0 and image.max() == 1 and set(np.unique(label)) == {0, 1, 2}
