"""Siemens mosaics against nibabel's MosaicWrapper, on the two real ones that nibabel's tests carry."""

from __future__ import annotations

import gzip
import io
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_series
from pydicom.uid import RLELossless

from mona_infer.errors import InputError
from mona_infer.io.read import read_frames, read_volume

PACKAGED = Path(nibabel.__file__).parent / "nicom" / "tests" / "data"
NAMES = ("siemens_dwi_0", "siemens_dwi_1000")


@pytest.fixture
def mosaics(tmp_path):
    if not PACKAGED.is_dir():
        pytest.skip("this nibabel comes without its test files")
    (tmp_path / "in").mkdir()
    files = [tmp_path / "in" / f"{name}.dcm" for name in NAMES]
    for file in files:
        ds = pydicom.dcmread(io.BytesIO(gzip.decompress((PACKAGED / f"{file.name}.gz").read_bytes())))
        # The headers are real; the pixels were replaced by zeros, which any order of slices would match.
        ds.PixelData = np.random.default_rng(len(file.name)).integers(0, 4096, (896, 896), np.uint16).tobytes()
        ds.save_as(file)
    return files


def same_as_nibabel(volume, file):
    """nibabel's arrays are (row, column, slice) and its affine LPS."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nibabel.nicom.dicomwrappers import MosaicWrapper, wrapper_from_file

        wrapper = wrapper_from_file(file)
        assert isinstance(wrapper, MosaicWrapper)
        np.testing.assert_array_equal(volume.intensities(volume.voxels).transpose(1, 0, 2), wrapper.get_data())
        affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ wrapper.affine[:, [1, 0, 2, 3]]
    np.testing.assert_allclose(volume.affine, affine, atol=1e-9)


def edited(file, change):
    ds = pydicom.dcmread(file)
    change(ds)
    ds.save_as(file)
    return file


def test_a_mosaic_is_the_volume_that_nibabel_reads(mosaics):
    for file in mosaics:
        volume = read_volume(file)
        assert volume.shape == (128, 128, 48)
        same_as_nibabel(volume, file)


def test_a_series_of_mosaics_is_a_series_in_time(mosaics):
    frames = list(read_frames(mosaics[0].parent))
    assert len(frames) == 2
    for volume, file in zip(frames, mosaics, strict=True):
        same_as_nibabel(volume, file)
    assert frames[0].times == pytest.approx((0, 6.6275))  # AcquisitionTime 202959.925 and 203006.5525


def test_a_compressed_mosaic_and_one_whose_normal_points_the_other_way(mosaics):
    file = edited(mosaics[0], lambda ds: ds.compress(RLELossless, generate_instance_uid=False))
    same_as_nibabel(read_volume(file), file)

    def turn(ds):
        block = ds[0x0029, 0x1010]
        normal = (b"0.00523632", b"0.99998629")
        assert all(block.value.count(number) == 1 for number in normal)
        for number in normal:
            block.value = block.value.replace(number + b"\0", b"-" + number)

    before = read_volume(file)
    after = read_volume(edited(file, turn))
    np.testing.assert_array_equal(after.voxels[:, :, ::-1], before.voxels)
    # Ours runs along the normal of the tags, nibabel's in the order of the tiles: the same voxels in the same places.
    flip = np.diag([1.0, 1.0, -1.0, 1.0])
    flip[2, 3] = after.shape[2] - 1
    same_as_nibabel(replace(after, voxels=after.voxels[:, :, ::-1], affine=after.affine @ flip), file)


def cut_csa(ds):
    ds[0x0029, 0x1010].value = ds[0x0029, 0x1010].value[:900]


def lose_csa(ds):
    del ds[0x0029, 0x1010]


def tilt(ds):
    ds.ImageOrientationPatient = [1, 0, 0, 0, 0.6, -0.8]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lose_csa, "CSA header is missing"),
        (cut_csa, "CSA header is damaged"),
        (tilt, "slice normal"),
        (lambda ds: delattr(ds, "SpacingBetweenSlices"), "how far apart"),
        (lambda ds: setattr(ds, "Rows", 895), "divide into 7x7 tiles"),
    ],
    ids=["anonymised", "damaged", "normal", "spacing", "tiles"],
)
def test_a_mosaic_that_cannot_be_taken_apart_is_refused_by_name(mosaics, change, why):
    file = edited(mosaics[0], change)
    if why == "divide into 7x7 tiles":
        edited(file, lambda ds: setattr(ds, "PixelData", ds.PixelData[: 895 * 896 * 2]))
    with pytest.raises(InputError, match=f"is a Siemens mosaic that cannot be split into slices .*{why}"):
        read_volume(file)


def test_a_mosaic_by_its_count_alone_is_still_one(mosaics):
    file = edited(mosaics[0], lambda ds: setattr(ds, "ImageType", ["ORIGINAL", "PRIMARY", "DIFFUSION"]))
    same_as_nibabel(read_volume(file), file)


def test_a_copy_of_a_mosaic_is_passed_over(mosaics):
    shutil.copy(mosaics[0], mosaics[0].with_name("again.dcm"))
    mosaics[1].unlink()
    edited(mosaics[0], lambda ds: None)
    volume = read_volume(mosaics[0].parent)
    assert "exact copies" in volume.notes[0]
    same_as_nibabel(volume, mosaics[0])


def test_a_mosaic_by_its_image_type_alone_is_refused(tmp_path):
    voxels = np.zeros((8, 8, 1), np.int16)
    write_series(tmp_path, voxels, np.diag([1.0, 1, 3, 1]), ImageType=["ORIGINAL", "PRIMARY", "M", "MOSAIC"])
    with pytest.raises(InputError, match="Siemens mosaic"):
        read_volume(tmp_path)


def test_no_dicom_seg_can_refer_to_a_mosaic(mosaics):
    with pytest.raises(InputError, match=r"cannot refer to a slice of a Siemens mosaic; give --out a .nii.gz name"):
        read_volume(mosaics[0], origin=True)
