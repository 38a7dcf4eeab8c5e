"""`read_dicom` against the tags as pydicom reads them: where slices lie, their order, gaps and jitter."""

from __future__ import annotations

import itertools

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import decimals, write_series
from helpers.dicom_reading import AXIAL, read, refused, rotation, scan

pytestmark = pytest.mark.usefixtures("silence")


def world_by_tags(file, row, column):
    """PS3.3 equation C.7.6.2.1-1 on the tags as pydicom reads them, LPS turned to RAS."""
    ds = pydicom.dcmread(file)
    x, y = np.array(ds.ImageOrientationPatient, float).reshape(2, 3)
    between_rows, between_columns = map(float, ds.PixelSpacing)
    place = np.array(ds.ImagePositionPatient, float) + x * between_columns * column + y * between_rows * row
    return place * [-1, -1, 1]


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


def test_orientation_rounded_to_five_decimals_is_not_a_mixture(tmp_path):
    affine = AXIAL.copy()
    affine[:3, :3] = rotation((1, 2, 3), 25) @ AXIAL[:3, :3]
    exact = np.ravel((np.diag([-1.0, -1, 1]) @ affine[:3, :2] / (0.8, 1.2)).T)
    write_series(
        tmp_path, scan(), affine, ImageOrientationPatient=lambda k: decimals(exact.round(5) if k == 2 else exact)
    )
    np.testing.assert_allclose(read(tmp_path).affine, affine, atol=1e-9)
