"""Cine series and enhanced multi-frame files: which frame is which, and how frames form a stack."""

from __future__ import annotations

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_enhanced, write_series
from helpers.dicom_reading import AXIAL, read, refused, scan
from pydicom.uid import (
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    generate_uid,
)

pytestmark = pytest.mark.usefixtures("silence")


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
