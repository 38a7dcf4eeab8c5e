"""Series that contradict themselves: copies, mixtures, missing tags and images that cannot be used."""

from __future__ import annotations

import shutil

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_series
from helpers.dicom_reading import AXIAL, read, refused, rotation, scan
from pydicom.dataset import Dataset
from pydicom.uid import (
    RLELossless,
    generate_uid,
)

pytestmark = pytest.mark.usefixtures("silence")


def test_a_position_shown_twice_is_refused(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL)
    ds = pydicom.dcmread(files[2])
    ds.SOPInstanceUID = generate_uid()
    ds.InstanceNumber = 77
    ds.save_as(tmp_path / "again.dcm")
    refused(tmp_path, files[2], tmp_path / "again.dcm")


@pytest.mark.parametrize("what", ["pixels", "position"])
def test_two_versions_of_one_image_are_refused(tmp_path, what):
    files = write_series(tmp_path, scan(), AXIAL)
    ds = pydicom.dcmread(files[2])
    if what == "pixels":
        ds.PixelData = ds.PixelData[:-1] + bytes([ds.PixelData[-1] ^ 1])
    else:
        ds.ImagePositionPatient = [0, 0, 99]
    ds.save_as(tmp_path / "again.dcm")
    refused(tmp_path, files[2], tmp_path / "again.dcm", "different versions of the same image")


@pytest.mark.parametrize("compress", [None, RLELossless], ids=["plain", "rle"])
def test_exact_copies_are_read_once_with_a_note(tmp_path, compress):
    files = write_series(tmp_path / "a", scan(), AXIAL, compress=compress)
    shutil.copy(files[2], tmp_path / "a" / "again.dcm")
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert volume.notes == (f"skipped 1 file(s) that are exact copies, such as {tmp_path / 'a' / 'again.dcm'}",)
    for file in files:
        (tmp_path / "b").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "b")
    volume = read(tmp_path)
    assert (volume.frames, volume.shape) == (1, (6, 5, 4))
    assert "5 file(s) that are exact copies" in volume.notes[0]


def test_zeros_after_the_pixels_are_read_with_a_note(tmp_path):
    """MR_small_padded.dcm of pydicom; what is not zero means that a size is wrong."""
    padding = lambda k: np.ascontiguousarray(scan()[:, :, k].T).tobytes() + bytes(60 if k == 2 else 0)  # noqa: E731
    files = write_series(tmp_path, scan(), AXIAL, PixelData=padding, DataSetTrailingPadding=bytes(300))
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert volume.notes == (f"1 file(s) have zeros after the pixels, which were ignored (60 bytes in {files[2]})",)
    ds = pydicom.dcmread(files[2])
    ds.PixelData = ds.PixelData[:-2] + b"\1\0"
    ds.save_as(files[2])
    refused(tmp_path, files[2], "need 60 bytes of pixels, found 120")


def test_one_plane_at_two_places_is_refused(tmp_path):
    uid = generate_uid()
    write_series(tmp_path / "a", scan(), AXIAL, SeriesInstanceUID=uid)
    beside = AXIAL.copy()
    beside[0, 3] += 50
    write_series(tmp_path / "b", scan(), beside, SeriesInstanceUID=uid, InstanceNumber=lambda k: 50 + k)
    refused(tmp_path, "same plane at different positions")


@pytest.mark.parametrize("what", ["size", "orientation", "pixel spacing", "pixel type"])
def test_mixtures_are_counted_and_the_odd_file_named(tmp_path, what):
    uid = generate_uid()
    write_series(tmp_path / "many", scan((6, 5, 5)), AXIAL, SeriesInstanceUID=uid)
    odd, affine = scan((6, 5, 1)), AXIAL.copy()
    affine[2, 3] += 12.5
    if what == "size":
        odd = scan((8, 8, 1))
    elif what == "orientation":
        affine[:3, :3] = rotation((1, 0, 0), 90) @ affine[:3, :3]
    elif what == "pixel spacing":
        affine[:3, 0] *= 1.001
    else:
        odd = scan((6, 5, 1), np.uint16)
    (file,) = write_series(tmp_path / "odd", odd, affine, SeriesInstanceUID=uid)
    refused(tmp_path, f"differ in {what}", "5 of", "1 of", file)


@pytest.mark.parametrize("keyword", ["ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Columns"])
def test_missing_tags_are_named_with_their_file(tmp_path, keyword):
    write_series(tmp_path, scan(), AXIAL)
    ds = pydicom.dcmread(tmp_path / "0002.dcm")
    delattr(ds, keyword)
    ds.save_as(tmp_path / "0002.dcm")
    refused(tmp_path, keyword, "0002.dcm", str(pydicom.tag.Tag(keyword)).upper())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "PALETTE COLOR"),
        ({"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}, "RGB"),
        ({"ModalityLUTSequence": [Dataset()]}, "Modality LUT"),
        ({"BitsAllocated": 64, "BitsStored": 64, "HighBit": 63}, "64 bits"),
        ({"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]}, "perpendicular"),
        ({"ImageOrientationPatient": [1, 0, 0]}, "6 numbers"),
        ({"PixelSpacing": [0, 1]}, "not positive"),
        ({"PixelSpacing": [1e300, 1e300]}, "not plausible"),
        ({"RescaleSlope": 0}, "rescale slope"),
        ({"RescaleSlope": "1e300"}, "rescale slope"),
        ({"NumberOfFrames": 2}, "functional groups"),
        ({"NumberOfFrames": 2**31 - 1}, "too many for a file"),
        ({"Rows": 4}, "need"),
        ({"Rows": 65535, "Columns": 65535}, "need"),
        ({"PixelData": None}, "pixel data"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_images_are_refused_in_words(tmp_path, changes, word):
    write_series(tmp_path, scan(), AXIAL, **changes)
    refused(tmp_path, word)
