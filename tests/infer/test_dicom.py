"""`read_dicom` against pydicom's own words: tags for geometry, `pixel_array` for values."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import decimals, write_enhanced, write_series
from pydicom.dataset import Dataset
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.encoders.base import get_encoder
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    generate_uid,
)

from mona_infer.errors import InputError, MissingPart
from mona_infer.io.dicom.read import read_dicom

BUDGET = 1 << 24
AXIAL = np.array([[-0.8, 0, 0, 90.0], [0, -1.2, 0, 120.0], [0, 0, 2.5, -40.0], [0, 0, 0, 1]])


@pytest.fixture(autouse=True)
def silence(capfd):
    """Whatever the input, nothing is printed, by Python or by a codec."""
    yield
    assert capfd.readouterr() == ("", "")


def scan(shape=(6, 5, 4), dtype=np.int16, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def read(path, **options):
    """Read with warnings as errors: none may get out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_dicom(path, budget=options.pop("budget", BUDGET), **options)


def refused(path, *words, kind=InputError, **options):
    """The one sentence with which `path` is refused."""
    with pytest.raises(kind) as caught:
        read(path, **options)
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert str(word) in said
    return said


def world_by_tags(file, row, column):
    """PS3.3 equation C.7.6.2.1-1 on the tags as pydicom reads them, LPS turned to RAS."""
    ds = pydicom.dcmread(file)
    x, y = np.array(ds.ImageOrientationPatient, float).reshape(2, 3)
    between_rows, between_columns = map(float, ds.PixelSpacing)
    place = np.array(ds.ImagePositionPatient, float) + x * between_columns * column + y * between_rows * row
    return place * [-1, -1, 1]


def rotation(axis, degrees):
    axis, angle = np.array(axis) / np.linalg.norm(axis), np.radians(degrees)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


# Geometry and order


@pytest.mark.parametrize("turn", [((1, 0, 0), 0), ((1, 2, 3), 25), ((3, -1, 1), 73)], ids=["straight", "25", "73"])
def test_every_axis_order_keeps_a_landmark_in_its_place(tmp_path, turn):
    voxels = np.zeros((4, 3, 2), np.int16)
    voxels[3, 1, 1] = 7
    for order, signs in itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)):
        affine = np.eye(4)
        affine[:3, :3] = rotation(*turn) @ (np.eye(3)[:, order] * signs * (0.7, 1.1, 3.0))
        affine[:3, 3] = (-31.5, 12.25, 80.0)
        files = write_series(tmp_path, voxels, affine)  # over the last one
        volume = read(tmp_path)
        (index,) = np.argwhere(volume.voxels == 7)
        found = (volume.affine @ [*index, 1])[:3]
        np.testing.assert_allclose(found, world_by_tags(files[1], row=1, column=3), atol=1e-6)
        np.testing.assert_allclose(found, (affine @ [3, 1, 1, 1])[:3], atol=1e-6)
        np.testing.assert_allclose(volume.spacing, (0.7, 1.1, 3.0), atol=1e-6)


def test_names_and_instance_numbers_are_not_trusted(tmp_path):
    voxels = scan((6, 5, 9))
    shuffled = np.random.default_rng(1).permutation(9)
    (tmp_path / "sub").mkdir()
    write_series(
        tmp_path,
        voxels,
        AXIAL,
        names=[f"{'sub/' if k % 2 else ''}{shuffled[k]}" for k in range(9)],
        InstanceNumber=lambda k: int(shuffled[::-1][k]),
    )
    (tmp_path / "readme.txt").write_text("not DICOM")
    (tmp_path / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM garbage")
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, voxels)
    np.testing.assert_allclose(volume.affine, AXIAL, atol=1e-9)
    assert volume.notes == ()
    assert (volume.modality, volume.source) == ("MR", str(tmp_path))
    assert volume.voxels.flags.f_contiguous


def test_values_equal_pydicom(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL)
    volume = read(tmp_path)
    for k, file in enumerate(files):
        np.testing.assert_array_equal(volume.voxels[:, :, k].T, pydicom.dcmread(file).pixel_array)


@pytest.mark.parametrize("degrees", [0.1, 12.0, -30.0])
def test_gantry_tilt_is_carried_by_the_affine(tmp_path, degrees):
    affine = AXIAL.copy()
    affine[1, 2] = 2.5 * np.tan(np.radians(degrees))
    files = write_series(tmp_path, scan(), affine)
    volume = read(tmp_path)
    np.testing.assert_allclose(volume.affine, affine, atol=1e-9)
    for k, file in enumerate(files):
        np.testing.assert_allclose((volume.affine @ [5, 2, k, 1])[:3], world_by_tags(file, 2, 5), atol=1e-6)
    if abs(degrees) < 0.2:
        assert volume.notes == ()
    else:
        assert f"{abs(degrees):.1f} degrees" in volume.notes[0]


@pytest.mark.parametrize(
    ("tags", "spacing", "noted"),
    [
        ({"SliceThickness": 4.0, "SpacingBetweenSlices": 5.0}, 4.0, False),
        ({"SpacingBetweenSlices": 5.0}, 5.0, False),
        ({"SliceThickness": 0}, 1.0, True),
    ],
)
def test_single_slice(tmp_path, tags, spacing, noted):
    (file,) = write_series(tmp_path, scan((6, 5, 1)), AXIAL, **tags)
    for path in (tmp_path, file):
        volume = read(path)
        assert volume.spacing == pytest.approx((0.8, 1.2, spacing))
        assert bool(volume.notes) == noted
        np.testing.assert_allclose((volume.affine @ [3, 4, 0, 1])[:3], world_by_tags(file, 4, 3), atol=1e-6)


@pytest.mark.parametrize("gone", [[5], [1, 6], [3, 4]])
def test_missing_slices_are_named(tmp_path, gone):
    files = write_series(tmp_path, scan((6, 5, 10)), AXIAL)
    for k in gone:
        files[k].unlink()
    kept = [file for k, file in enumerate(files) if k not in gone]
    before = max(file for file in kept if file < files[gone[0]])
    after = min(file for file in kept if file > files[gone[0]])
    refused(tmp_path, f"{len(gone)} slice", "missing", before, after)


def test_one_of_three_gaps_counts_as_a_hole_in_the_smallest_stack(tmp_path):
    write_series(tmp_path, scan((6, 5, 4)), AXIAL)[1].unlink()
    refused(tmp_path, "1 slice is missing", "0000.dcm", "0002.dcm")


def moved(k_moved, by):
    lps = np.diag([-1.0, -1, 1, 1]) @ AXIAL
    return lambda k: decimals(lps[:3, 3] + k * lps[:3, 2] + (np.array(by) if k == k_moved else 0))


@pytest.mark.parametrize("by", [(0, 0, 0.04), (0.03, 0.02, 0)])
def test_rounded_positions_are_accepted(tmp_path, by):
    write_series(tmp_path, scan((6, 5, 8)), AXIAL, ImagePositionPatient=moved(3, by))
    np.testing.assert_allclose(read(tmp_path).affine, AXIAL, atol=1e-9)


@pytest.mark.parametrize("by", [(0, 0, 0.06), (0, 0, 0.45), (0.3, 0, 0)])
def test_jitter_below_a_millimetre_is_read_with_a_note(tmp_path, by):
    write_series(tmp_path, scan((6, 5, 8)), AXIAL, ImagePositionPatient=moved(3, by))
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, scan((6, 5, 8)))
    np.testing.assert_allclose(volume.affine, AXIAL, atol=1e-9)
    assert volume.notes == (f"slices are up to {np.linalg.norm(by):.2f} mm off an even spacing: read as 2.5 mm apart",)


def test_jitter_of_a_millimetre_is_refused_however_thick_the_slices(tmp_path):
    affine = np.diag([1.0, 1.0, 20.0, 1.0])
    for off, ends in ((0.9, "read"), (1.1, "refused")):
        places = lambda k, off=off: decimals([0, 0, 20 * k + off * (k == 3)])  # noqa: E731
        write_series(tmp_path, scan((6, 5, 8)), affine, ImagePositionPatient=places)
        if ends == "read":
            assert "0.90 mm" in read(tmp_path).notes[0]
        else:
            refused(tmp_path, "not evenly spaced", "0003.dcm")


@pytest.mark.parametrize("by", [(0, 0, 0.6), (0, 0, 1.2), (0.6, 0, 0)])
def test_irregular_positions_are_refused(tmp_path, by):
    write_series(tmp_path, scan((6, 5, 8)), AXIAL, ImagePositionPatient=moved(3, by))
    refused(tmp_path, "not evenly spaced", "0003.dcm")


def test_thin_slices_are_held_to_a_fifth_of_their_spacing(tmp_path):
    """0.05 mm would be more than a whole slice of this micro-CT."""
    affine = np.diag([0.04, 0.04, 0.04, 1])
    place = lambda off: lambda k: decimals([0, 0, 0.04 * k + off * (k == 3)])  # noqa: E731
    write_series(tmp_path, scan((6, 5, 8)), affine, ImagePositionPatient=place(0.004))
    assert read(tmp_path).spacing == pytest.approx((0.04, 0.04, 0.04))
    write_series(tmp_path, scan((6, 5, 8)), affine, ImagePositionPatient=place(0.012))
    refused(tmp_path, "not evenly spaced", "0003.dcm")


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


# Mixed and incomplete series


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


def test_orientation_rounded_to_five_decimals_is_not_a_mixture(tmp_path):
    affine = AXIAL.copy()
    affine[:3, :3] = rotation((1, 2, 3), 25) @ AXIAL[:3, :3]
    exact = np.ravel((np.diag([-1.0, -1, 1]) @ affine[:3, :2] / (0.8, 1.2)).T)
    write_series(
        tmp_path, scan(), affine, ImageOrientationPatient=lambda k: decimals(exact.round(5) if k == 2 else exact)
    )
    np.testing.assert_allclose(read(tmp_path).affine, affine, atol=1e-9)


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


# Series


@pytest.fixture
def three_series(tmp_path):
    write_series(tmp_path / "x", scan((6, 5, 3), seed=1), AXIAL, SeriesNumber=1, SeriesDescription="scout")
    write_series(tmp_path / "y", scan((6, 5, 7), seed=2), AXIAL, SeriesNumber=2, SeriesDescription="T1 axial")
    write_series(tmp_path, scan((6, 5, 4), seed=3), AXIAL, SeriesNumber=3, SeriesInstanceUID="1.2.3.4")
    report = pydicom.dcmread(tmp_path / "x" / "0000.dcm")
    for keyword in ("Rows", "Columns", "PixelData", "ImagePositionPatient"):
        delattr(report, keyword)
    report.SeriesInstanceUID = "1.2.3.5"
    report.file_meta.MediaStorageSOPClassUID = report.SOPClassUID = pydicom.uid.BasicTextSRStorage
    report.save_as(tmp_path / "report.dcm")
    return tmp_path


def test_the_largest_series_is_read_and_the_others_listed(three_series):
    volume = read(three_series)
    np.testing.assert_array_equal(volume.voxels, scan((6, 5, 7), seed=2))
    (note,) = volume.notes
    for word in (
        "2 'T1 axial' with 7 slice(s) of 6x5 pixels",
        "the largest",
        "1 'scout' with 3",
        "3 'synthetic' with 4",
        "--series",
    ):
        assert word in note


@pytest.mark.parametrize(("wanted", "seed"), [("1", 1), ("scout", 1), ("T1 axial", 2), ("1.2.3.4", 3), ("3", 3)])
def test_a_series_is_chosen_by_number_description_or_uid(three_series, wanted, seed):
    volume = read(three_series, series=wanted)
    np.testing.assert_array_equal(volume.voxels, scan(volume.shape, seed=seed))
    assert volume.notes == ()


def test_a_choice_that_matches_nothing_lists_what_is_there(three_series):
    refused(three_series, "no series matches 'T1'", "2 'T1 axial' with 7", series="T1")


def test_a_choice_that_matches_two_is_refused(three_series):
    write_series(three_series / "z", scan((6, 5, 2)), AXIAL, SeriesNumber=9, SeriesDescription="scout")
    refused(three_series, "2 series match 'scout'", "9 'scout' with 2", series="scout")


def test_a_tie_is_refused_with_a_list(tmp_path):
    for number in (4, 5):
        write_series(tmp_path / str(number), scan(), AXIAL, SeriesNumber=number, SeriesDescription=f"run {number}")
    refused(tmp_path, "4 'run 4' with 4", "5 'run 5' with 4", "--series")


def test_unusable_images_of_another_series_do_not_matter(tmp_path):
    write_series(tmp_path / "rgb", scan((6, 5, 2)), AXIAL, PhotometricInterpretation="RGB", PixelSpacing=None)
    write_series(tmp_path / "mr", scan(), AXIAL)
    np.testing.assert_array_equal(read(tmp_path).voxels, scan())


# Cine


def write_cine(folder, voxels, **changes):
    """voxels[i, j, k, t] as one classic series; `changes` are asked for (k, t)."""
    uid = generate_uid()
    for t in range(voxels.shape[3]):
        own = {
            keyword: (lambda k, value=value, t=t: value(k, t)) if callable(value) else value
            for keyword, value in changes.items()
        }
        number = own.pop("InstanceNumber", lambda k, t=t: 1 + k * voxels.shape[3] + t)
        names = [f"{(k * 7 + t * 3) % 11}-{k}-{t}" for k in range(voxels.shape[2])]
        write_series(folder, voxels[..., t], AXIAL, names=names, SeriesInstanceUID=uid, InstanceNumber=number, **own)


@pytest.mark.parametrize(
    "changes",
    [
        {"TemporalPositionIdentifier": lambda k, t: t + 1, "InstanceNumber": lambda k, t: 99 - t},
        {"TriggerTime": lambda k, t: 9.5 * t + k / 8, "AcquisitionTime": "101112", "TemporalPositionIdentifier": 1},
        {"AcquisitionNumber": lambda k, t: t + 1, "InstanceNumber": lambda k, t: 99 - t},
        {"AcquisitionTime": lambda k, t: f"0959{57 + t}.{k}00000", "AcquisitionNumber": 1},
        {},
    ],
    ids=["temporal position", "trigger time", "acquisition number", "acquisition time", "instance number"],
)
def test_cine_frames(tmp_path, changes):
    voxels = scan((6, 5, 4, 3))
    write_cine(tmp_path, voxels, **changes)
    for t in range(3):
        volume = read(tmp_path, frame=t)
        np.testing.assert_array_equal(volume.voxels, voxels[..., t])
        np.testing.assert_allclose(volume.affine, AXIAL, atol=1e-9)
        assert f"frame {t} of 3" in volume.notes[0]
    refused(tmp_path, "has 3 frames; choose one with --frame 0..2")
    refused(tmp_path, "--frame 0..2, not 3", frame=3)
    refused(tmp_path, "--frame 0..2, not -1", frame=-1)


@pytest.mark.parametrize("clock", [{"AcquisitionTime": "101112"}, {"TriggerTime": 20}])
def test_same_position_and_time_is_a_duplicate_whatever_the_numbers(tmp_path, clock):
    write_cine(tmp_path, scan((6, 5, 4, 2)), **clock)
    refused(tmp_path, "same position at the same time", frame=0)


def test_a_cine_with_a_file_missing_is_refused(tmp_path):
    write_cine(tmp_path, scan((6, 5, 4, 3)), TriggerTime=lambda k, t: t)
    next(tmp_path.glob("*-2-1")).unlink()
    refused(tmp_path, "most positions have 3 frames, but that of", frame=0)


def test_one_frame_needs_no_choice(tmp_path):
    write_series(tmp_path, scan(), AXIAL)
    np.testing.assert_array_equal(read(tmp_path, frame=0).voxels, scan())
    refused(tmp_path, "has 1 frame", frame=1)


# Values


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int8, np.uint8, np.int32, np.uint32])
def test_stored_types_are_kept(tmp_path, dtype):
    voxels = scan((5, 3, 4), dtype)  # an odd number of bytes a slice, which PS3.5 8.1.1 pads
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=0.5, RescaleIntercept=-1024)
    volume = read(tmp_path)
    assert volume.voxels.dtype == dtype
    assert (volume.slope, volume.intercept) == (0.5, -1024)
    np.testing.assert_array_equal(volume.voxels, voxels)


def test_rescale_that_differs_by_slice_is_applied(tmp_path):
    voxels = scan()
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=lambda k: 0.25 * (k + 1), RescaleIntercept=lambda k: -k)
    volume = read(tmp_path)
    assert volume.voxels.dtype == np.float32
    assert (volume.slope, volume.intercept) == (1, 0)
    np.testing.assert_array_equal(volume.voxels, voxels * (0.25 * np.arange(1, 5)) - np.arange(4))


def test_bits_above_bits_stored_are_not_values(tmp_path):
    voxels = scan(dtype=np.uint16)
    write_series(tmp_path, voxels, AXIAL, BitsStored=12, HighBit=11)
    np.testing.assert_array_equal(read(tmp_path).voxels, voxels & 0xFFF)


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian])
@pytest.mark.parametrize("dtype", [np.int16, np.uint8])
def test_uncompressed_syntaxes(tmp_path, syntax, dtype):
    voxels = scan((5, 3, 4), dtype)
    files = write_series(tmp_path, voxels, AXIAL, syntax=syntax)
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, voxels)
    assert volume.voxels.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(volume.voxels[:, :, 1].T, pydicom.dcmread(files[1]).pixel_array)


def needs_codec(syntax):
    if not (get_decoder(syntax).is_available and get_encoder(syntax).is_available):
        pytest.skip(f"no codec for {syntax.name}")


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless], ids=lambda uid: uid.keyword)
@pytest.mark.parametrize("dtype", [np.int16, np.uint8])
def test_compressed_syntaxes(tmp_path, syntax, dtype):
    needs_codec(syntax)
    voxels = scan((96, 72, 3), dtype)  # JPEG 2000 needs room for its resolutions
    write_series(tmp_path / "classic", voxels, AXIAL, compress=syntax)
    write_enhanced(tmp_path / "enhanced.dcm", voxels, AXIAL, compress=syntax)
    for path in (tmp_path / "classic", tmp_path / "enhanced.dcm"):
        volume = read(path)
        np.testing.assert_array_equal(volume.voxels, voxels)
        assert volume.voxels.dtype == dtype


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless], ids=lambda uid: uid.keyword)
def test_a_corrupt_compressed_stream_is_refused(tmp_path, syntax):
    needs_codec(syntax)
    files = write_series(tmp_path, scan((96, 72, 3)), AXIAL, compress=syntax)
    data = bytearray(files[1].read_bytes())
    data[-1500:-1000] = bytes(500)
    files[1].write_bytes(data[:-900])
    refused(tmp_path, files[1], "export it again")


@pytest.mark.parametrize(
    ("syntax", "marker", "size"),
    [(JPEGLSLossless, b"\xff\xf7", (5, ">HH")), (JPEG2000Lossless, b"\xff\x4f\xff\x51", (8, ">LL"))],
    ids=["JPEG-LS", "JPEG 2000"],
)
def test_a_codestream_larger_than_its_tags_never_reaches_a_codec(tmp_path, monkeypatch, syntax, marker, size):
    needs_codec(syntax)
    files = write_series(tmp_path, scan((96, 72, 3)), AXIAL, compress=syntax)
    data = bytearray(files[1].read_bytes())
    struct.pack_into(size[1], data, data.index(marker) + size[0], 60000, 60000)
    files[1].write_bytes(data)
    decoders = get_decoder(syntax)._available
    for name, decode in decoders.items():

        def bounded(code, runner, decode=decode):
            assert struct.pack(size[1], 60000, 60000) not in code
            return decode(code, runner)

        monkeypatch.setitem(decoders, name, bounded)
    refused(tmp_path, files[1], "60000")


def test_a_length_field_of_gigabytes_makes_no_room_for_them(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL, syntax=ImplicitVRLittleEndian)
    data = bytearray(files[1].read_bytes())
    at = data.index(struct.pack("<HH", 0x0020, 0x0032))
    struct.pack_into("<L", data, at + 4, 0xFFFFFFF0)
    files[1].write_bytes(data)
    tracemalloc.start()
    refused(tmp_path, files[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


@pytest.mark.parametrize(
    ("syntax", "package"),
    [
        (JPEG2000Lossless, "pylibjpeg-openjpeg"),
        (HTJ2KLossless, "pylibjpeg-openjpeg"),
        (JPEGLSLossless, "pyjpegls"),
        (JPEGLosslessSV1, "python-gdcm"),
    ],
)
def test_a_missing_codec_names_syntax_package_and_command(tmp_path, monkeypatch, syntax, package):
    monkeypatch.setattr(get_decoder(syntax), "_available", {})
    files = write_series(tmp_path, scan(), AXIAL)
    for file in files:
        ds = pydicom.dcmread(file)
        ds.file_meta.TransferSyntaxUID = syntax
        ds.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xd9"])
        ds["PixelData"].is_undefined_length = True
        ds.save_as(file)
    refused(tmp_path, syntax.name, package, 'python -m pip install "pylibjpeg', kind=MissingPart)


def test_an_unknown_transfer_syntax_is_refused(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL)
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.9\0"))
    refused(tmp_path, "1.2.840.10008.1.2.9", "not supported")


# Enhanced multi-frame


@pytest.mark.parametrize("undefined_lengths", [False, True])
@pytest.mark.parametrize("syntax", [None, ExplicitVRBigEndian, ImplicitVRLittleEndian])
def test_enhanced_frames_in_any_order(tmp_path, undefined_lengths, syntax):
    voxels = scan((6, 5, 7))
    order = [(int(k), 0) for k in np.random.default_rng(2).permutation(7)]
    options = {"syntax": syntax} if syntax else {}
    path = write_enhanced(tmp_path / "e", voxels, AXIAL, order=order, undefined_lengths=undefined_lengths, **options)
    volume = read(path)
    np.testing.assert_array_equal(volume.voxels, voxels)
    np.testing.assert_allclose(volume.affine, AXIAL, atol=1e-9)
    for frame, plane in enumerate(pydicom.dcmread(path).pixel_array):
        np.testing.assert_array_equal(volume.voxels[:, :, order[frame][0]].T, plane)


@pytest.mark.parametrize("by_trigger", [False, True])
def test_enhanced_cine(tmp_path, by_trigger):
    voxels = scan((6, 5, 4, 3))
    order = [(k, t) for k in (2, 0, 3, 1) for t in (1, 2, 0)]
    path = write_enhanced(tmp_path / "e.dcm", voxels, AXIAL, order=order, by_trigger=by_trigger)
    for t in range(3):
        np.testing.assert_array_equal(read(path, frame=t).voxels, voxels[..., t])
    refused(path, "has 3 frames; choose one with --frame 0..2")


def test_enhanced_rescale_by_frame(tmp_path):
    voxels = scan()
    volume = read(write_enhanced(tmp_path / "e.dcm", voxels, AXIAL, rescale=lambda k: (k + 1, k)))
    assert volume.voxels.dtype == np.float32
    np.testing.assert_array_equal(volume.voxels, voxels * np.arange(1.0, 5) + np.arange(4))


def test_enhanced_checks_are_the_classic_ones(tmp_path):
    voxels = scan((6, 5, 8))
    path = tmp_path / "e.dcm"
    write_enhanced(path, voxels, AXIAL, order=[(k, 0) for k in (0, 1, 2, 4, 5)])
    refused(path, "1 slice is missing", "frame 3 and", "frame 4 are")
    write_enhanced(path, voxels, AXIAL, order=[(k, 0) for k in (0, 1, 2, 2)])
    refused(path, "frame 3 and", "frame 4 show the same position")
    write_enhanced(path, voxels, AXIAL, NumberOfFrames=9)
    refused(path, "NumberOfFrames is 9 but 8")
    write_enhanced(path, voxels, AXIAL, SharedFunctionalGroupsSequence=None)
    refused(path, "ImageOrientationPatient (0020,0037)")


def test_a_series_of_enhanced_files_forms_one_stack(tmp_path):
    voxels = scan((6, 5, 6))
    for name, part in (("b", (0, 1, 2)), ("a", (5, 4, 3))):
        order = [(k, 0) for k in part]
        write_enhanced(tmp_path / name, voxels, AXIAL, order=order, SeriesInstanceUID="1.2.3")
    np.testing.assert_array_equal(read(tmp_path).voxels, voxels)


# Files, folders, zips


def zipped(path, folder, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(folder.rglob("*"), reverse=True):
            archive.write(file, f"../../{file.relative_to(folder)}")  # a name that must not become a path
    return path


@pytest.mark.parametrize("name", ["scan.zip", "scan"])
def test_zip(tmp_path, name):
    write_series(tmp_path / "in" / "deep", scan(), AXIAL)
    (tmp_path / "in" / "._0000.dcm").write_bytes(b"resource fork")
    path = zipped(tmp_path / name, tmp_path / "in")
    shutil.rmtree(tmp_path / "in")
    volume = read(path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert (volume.source, volume.notes) == (str(path), ())
    assert list(tmp_path.iterdir()) == [path]


def test_a_zip_bomb_is_refused_before_unpacking(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(3):
            archive.writestr(f"{k}.dcm", bytes(BUDGET // 2))
    assert (tmp_path / "bomb.zip").stat().st_size < BUDGET // 100
    refused(tmp_path / "bomb.zip", "bomb.zip", "memory budget")


def test_a_zip_that_lies_about_sizes_is_refused(tmp_path):
    write_series(tmp_path / "in", scan((64, 64, 2)), AXIAL)
    path = zipped(tmp_path / "lie.zip", tmp_path / "in")
    data = path.read_bytes()
    size = (tmp_path / "in" / "0000.dcm").stat().st_size
    for claimed in (400, size + 100):
        lie = data.replace(struct.pack("<L", size), struct.pack("<L", claimed))
        assert lie != data
        path.write_bytes(lie)
        refused(path, "lie.zip")


def test_encrypted_and_broken_zips_are_refused(tmp_path):
    write_series(tmp_path / "in", scan(), AXIAL)
    data = zipped(tmp_path / "a.zip", tmp_path / "in").read_bytes()
    locked = bytearray(data)
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(mark, at + 1)) >= 0:
            locked[at + flags] |= 1
    (tmp_path / "a.zip").write_bytes(locked)
    refused(tmp_path / "a.zip", "is encrypted; unpack it with its password")
    (tmp_path / "a.zip").write_bytes(data[: len(data) // 2])
    refused(tmp_path / "a.zip", "a.zip")
    torn = bytearray(data)
    torn[200:260] = bytes(60)
    (tmp_path / "a.zip").write_bytes(torn)
    refused(tmp_path / "a.zip", "a.zip")


def test_a_deflated_bomb_stops_at_the_budget(tmp_path):
    (file,) = write_series(tmp_path, scan((6, 5, 1)), AXIAL, syntax=DeflatedExplicitVRLittleEndian)
    data = file.read_bytes()
    start = 144 + struct.unpack("<L", data[140:144])[0]
    packer = zlib.compressobj(wbits=-15)
    file.write_bytes(data[:start] + packer.compress(bytes(4 * BUDGET)) + packer.flush())
    refused(file, "unpacks to more than the budget")


@pytest.mark.parametrize("content", [{}, {"a.txt": b"hello", "b.dcm": b"", "c": b"\0" * 200}], ids=["empty", "text"])
def test_folders_without_images_are_refused(tmp_path, content):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    refused(tmp_path, tmp_path, "is a DICOM image")


def test_paths_that_are_no_scan_are_refused(tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    refused(tmp_path / "nothing", "does not exist")
    refused(tmp_path / "note.txt", "not a DICOM file")
    refused(tmp_path / "DICOMDIR", "index")


def test_links_and_pipes_do_not_hang(tmp_path):
    write_series(tmp_path / "in", scan(), AXIAL)
    (tmp_path / "in" / "loop").symlink_to(tmp_path)
    (tmp_path / "in" / "self").symlink_to("self")
    os.mkfifo(tmp_path / "in" / "pipe.dcm")
    (tmp_path / "in" / "gone.dcm").symlink_to("nowhere")
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert "gone.dcm" in volume.notes[0]


def test_a_slice_that_is_a_link_is_read(tmp_path):
    files = write_series(tmp_path / "in", scan(), AXIAL)
    shutil.move(files[3], tmp_path / "elsewhere")
    files[3].symlink_to(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read(tmp_path / "in").voxels, scan())


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    files = write_series(tmp_path, scan(), AXIAL)
    opened = Path.open

    def denied(self, *args, **options):
        if self == files[1]:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", denied)
    refused(tmp_path, files[1], "Permission denied")


@pytest.mark.parametrize("kept", [3, 40, 0.5, 0.97])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path, kept):
    """Also in the last slice of the stack, where passing over it would go unseen."""
    files = write_series(tmp_path, scan((16, 16, 4)), AXIAL)
    data = files[3].read_bytes()
    rows = data.index(b"\x28\0\x10\0US")
    files[3].write_bytes(data[: int(kept * len(data))] if kept < 1 else data[: rows - int(kept)])
    refused(tmp_path, files[3])


def test_a_name_with_terminal_codes_is_shown_on_one_plain_line(tmp_path):
    (file,) = write_series(tmp_path, scan((6, 5, 1)), AXIAL, PixelSpacing=None, SeriesDescription="a\x1b[31m")
    file.rename(tmp_path / "bad\n\x1b[31m.dcm")
    assert "\x1b" not in refused(tmp_path, "bad??[31m.dcm")
    assert "\x1b" not in refused(tmp_path, "no series matches", series="b")


# Budget and damage


def test_the_budget_is_checked_before_allocating_or_decoding(tmp_path, monkeypatch):
    voxels = scan((64, 64, 8))
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=2)
    np.testing.assert_array_equal(read(tmp_path, budget=voxels.nbytes).voxels, voxels)
    monkeypatch.setattr("mona_infer.io.dicom.pixels.iter_pixels", None)
    monkeypatch.setattr(np, "empty", None)
    refused(tmp_path, "64x64x8 voxels", "of memory", budget=voxels.nbytes - 1)


def test_peak_memory_is_the_volume_and_a_slice(tmp_path):
    voxels = scan((256, 256, 40))
    write_series(tmp_path / "classic", voxels, AXIAL)
    write_enhanced(tmp_path / "enhanced", voxels, AXIAL)
    for path in (tmp_path / "classic", tmp_path / "enhanced"):
        read(path)  # pydicom's own tables are filled by now
        tracemalloc.start()
        read(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.3 * voxels.nbytes  # the rest: 40 headers and a slice or three


def test_logging_is_left_as_it_was(tmp_path):
    logger = logging.getLogger("pydicom")
    before = logger.level, list(logger.handlers), list(warnings.filters)
    write_series(tmp_path, scan(), AXIAL)
    read(tmp_path)
    assert (logger.level, list(logger.handlers), list(warnings.filters)) == before


@pytest.mark.parametrize("kind", ["classic", "enhanced", "rle", "zip"])
def test_damaged_bytes_end_as_input_error_or_a_volume(tmp_path, kind):
    """Anything else that read_dicom raises fails this test as it is."""
    voxels = scan((12, 10, 3))
    if kind == "enhanced":
        victims = [write_enhanced(tmp_path / "in" / "e.dcm", voxels, AXIAL, undefined_lengths=True)]
    else:
        victims = write_series(tmp_path / "in", voxels, AXIAL, compress=RLELossless if kind == "rle" else None)
    path = tmp_path / "in"
    if kind == "zip":
        path = zipped(tmp_path / "in.zip", tmp_path / "in")
        victims = [path]
    whole = victims[0].read_bytes()
    ends = {"volume": 0, "refused": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        data = np.frombuffer(whole, np.uint8).copy()
        at = rng.integers(132 if kind != "zip" else 0, len(data), 1 + seed % 12)
        data[at] = rng.integers(0, 256, at.size)
        victims[0].write_bytes(data[: rng.integers(140, len(data))] if seed % 5 == 0 else data)
        try:
            volume = read(path)
        except (InputError, MissingPart) as error:
            assert "\n" not in str(error)
            ends["refused"] += 1
        else:
            assert volume.voxels.ndim == 3
            ends["volume"] += 1
    assert min(ends.values()) > 0  # the damage is neither all fatal nor all harmless
