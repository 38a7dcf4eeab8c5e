"""ACDC in both its layouts: the challenge's NIfTI files and the HDF5 files of semi-supervised work."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from helpers.dataset_cases import cases_of, slices_of
from helpers.dataset_files import (
    acdc_challenge,
    acdc_h5,
    mask,
    nnunet,
    save,
    save_as_acdc,
    scan,
)

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC
from mona_train.data.adapters import adapter_named, recognise
from mona_train.data.prepare import STEPS, prepare


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
    with pytest.raises(InputError, match=r"patient007 has frames \[4, 14, 20\] but no Info.cfg"):
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


def test_at_one_scale_all_layouts_are_one_cache_with_slices_upright(tmp_path):
    """Slices are 10x12 as stored: a quarter turn, and the long side is upright; nothing is resampled at 12 pixels."""
    layouts = [
        acdc_challenge(tmp_path / "nifti"),  # an affine that a tool made up
        acdc_challenge(tmp_path / "challenge", write=save_as_acdc),  # diag(-, -, +), as the real ones
        acdc_h5(tmp_path / "h5"),
        acdc_h5(tmp_path / "cut", volumes=False),
    ]
    for n, folder in enumerate(layouts):
        cache = prepare(adapter_named("acdc"), folder, tmp_path / f"cache{n}", pixels=12)
        assert (cache.task.long_side, cache.task.orientation) == (12, "portrait")
        assert {case.frame for case in cache.cases} == {(12, 10)}
        for case in cache.cases:
            patient, frame = int(case.name[7:10]), int(case.name[-2:]) - 1
            images, labels = (np.rot90(v.transpose(2, 1, 0), axes=(1, 2)) for v in (
                scan([patient, frame]), mask(10 * patient + frame)
            ))  # fmt: skip
            rows, label_rows = list(case.rows), list(case.label_rows.values())
            assert np.abs(cache.images[rows] / STEPS - images / 255).max() < 1e-4
            assert np.array_equal(cache.labels[label_rows], labels)


@pytest.mark.parametrize("write", [save, save_as_acdc])
def test_upright_slices_of_acdc_stay_as_they_are_stored(tmp_path, write):
    voxels = scan(1, (10, 12, 5))
    write(tmp_path / "patient001" / "patient001_frame01.nii.gz", voxels)
    for task in (adapter_named("acdc").task(tmp_path), replace(CARDIAC, long_side=12, orientation="portrait")):
        stack = SliceStack(cases_of("acdc", tmp_path)["patient001_frame01"].image(), task)
        assert np.array_equal(stack.slicing.view(voxels), voxels.transpose(2, 1, 0))


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
        with pytest.raises(InputError, match=rf"slice {lost} of patient001_frame01 is missing \(found {left} slices\)"):
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
        (no_label.label, r"patient001_frame02.h5 does not contain the dataset 'label', found \['image'\]"),
        (flat.image, r"patient002_frame01.h5: expected image as \[z, y, x\], found shapes \[\(3, 4\)\]"),
        (linked.image, r"patient002_frame02.h5 does not contain the dataset 'image'"),
        (linked.label, r"patient002_frame02.h5 is not a label map: it holds 0.5"),
    ]:
        with pytest.raises(InputError, match=words):
            read()


def test_acdc_in_both_layouts_or_twice_is_refused(tmp_path):
    acdc_h5(acdc_challenge(tmp_path))
    with pytest.raises(InputError, match=r"both as .nii and as .h5"):
        cases_of("acdc", tmp_path)
    for below in ("a", "b"):
        acdc_challenge(tmp_path / "twice" / below)
    with pytest.raises(InputError, match=r"a/patient001/patient001_frame01.nii.gz and .*b/patient001/.* remove one"):
        cases_of("acdc", tmp_path / "twice")


def test_acdc_in_the_form_of_nnunet_is_a_folder(tmp_path):
    nnunet(tmp_path, names=("patient001_frame01", "patient001_frame12", "patient002_frame01"))
    assert recognise(tmp_path).name == "folder"
    assert [case.patient for case in cases_of("folder", tmp_path).values()] == ["patient001"] * 2 + ["patient002"]
