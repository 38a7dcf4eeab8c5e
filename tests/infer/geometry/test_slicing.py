"""Storage order never changes what the network sees: 48 axis orders of the same scan, at many angles."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.orientations import ANGLES, TURNS, restored, rotation

from mona_infer import InputError, Volume
from mona_infer.geometry.slicing import WORLD_AXES, along_world_axes, body_plane, oriented, slicing
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC


@pytest.mark.parametrize("rule", ["stack", *WORLD_AXES])
@pytest.mark.parametrize("angles", ANGLES, ids=str)
@pytest.mark.parametrize("spacing", [(1.5, 1.5, 8.0), (1.0, 1.0, 1.0), (0.7, 0.9, 1.1)], ids=str)
def test_every_storage_order_gives_the_same_slices(rule, angles, spacing):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) * spacing
    affine[:3, 3] = 3, -7, 11
    voxels = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    expected = slicing(affine, rule).view(voxels)
    for axes, flips in TURNS:
        stored, turned = restored(voxels, affine, axes, flips)
        for noise in (0, 1e-6):  # a header's float32 rounds the last digits
            found = slicing(turned + noise * np.sin(np.arange(16)).reshape(4, 4), rule)
            np.testing.assert_array_equal(found.view(stored), expected)


def test_axial_slices_are_seen_as_a_radiologist_sees_them():
    """From below: the patient's right on the left, the front on top, feet first."""
    found = slicing(np.diag([1.0, 1.0, 1.0, 1.0]), "inferior-superior")
    assert found.axes == (2, 1, 0)
    assert found.flips == (False, True, True)


def test_a_thick_axis_is_the_stack_even_when_oblique():
    affine = np.eye(4)
    affine[:3, :3] = rotation(30, 50, 20) * (8.0, 1.4, 1.4)
    assert slicing(affine, "stack").axes[0] == 0


def test_without_a_thick_axis_the_named_world_axis_counts():
    affine = np.diag([1.0, 1.2, 1.0, 1.0])
    assert slicing(affine, "stack", "left-right").axes[0] == 0
    assert slicing(affine, "stack", "posterior-anterior").axes[0] == 1


def test_an_unknown_axis_is_named():
    with pytest.raises(InputError, match="sideways"):
        slicing(np.eye(4), "sideways")


def test_the_view_writes_through():
    mask = np.zeros((3, 4, 5), np.uint8, order="F")
    slicing(np.diag([1.0, 1.0, 9.0, 1.0]), "stack").view(mask)[0, 0, 0] = 7
    assert mask[2, 3, 0] == 7


def placed(shape, spacing, signs, origin):
    affine = np.diag([*(a * b for a, b in zip(spacing, signs, strict=True)), 1.0])
    affine[:3, 3] = origin
    return np.arange(np.prod(shape)).reshape(shape), affine


def test_a_copy_with_a_made_up_affine_is_seen_as_the_original():
    """ACDC's headers say diag(-, -, +); tools that lose them store the same array with diag(spacing)."""
    for shape in ((6, 9, 4), (9, 6, 4), (7, 7, 4)):
        voxels, original = placed(shape, (1.5, 1.5, 10.0), (-1, -1, 1), (0, 0, 0))
        _, copy = placed(shape, (1.5, 1.5, 10.0), (1, 1, 1), (0, 0, 0))
        wanted = oriented(original, shape, "portrait", "stack").view(voxels)
        np.testing.assert_array_equal(oriented(copy, shape, "portrait", "stack").view(voxels), wanted)
        upright = np.ascontiguousarray(voxels.transpose(2, 1, 0))  # rows along j, columns along i
        np.testing.assert_array_equal(wanted, upright if shape[0] <= shape[1] else np.rot90(upright, 1, axes=(1, 2)))
        assert wanted.shape[1] >= wanted.shape[2]


@pytest.mark.parametrize("shape", [(4, 6, 5), (6, 4, 5), (5, 5, 5)], ids=str)
@pytest.mark.parametrize("rule", ["stack", *WORLD_AXES])
@pytest.mark.parametrize(
    ("signs", "origin", "angles"),
    [((1, 1, 1), (0, 0, 0), (0, 0, 0)), ((-1, -1, 1), (0, 0, 0), (0, 0, 0)), ((1, 1, 1), (3, -7, 11), (10, -20, 30))],
    ids=["made up", "real", "oblique"],
)
def test_portrait_is_the_same_in_all_48_orders(shape, rule, signs, origin, angles):
    voxels, affine = placed(shape, (1.5, 1.4, 8.0), signs, origin)
    affine[:3, :3] = rotation(*angles) @ affine[:3, :3]
    expected = oriented(affine, shape, "portrait", rule).view(voxels)
    if any(angles):  # as a scanner placed it: a quarter turn would make every mask wrong
        np.testing.assert_array_equal(expected, slicing(affine, rule).view(voxels))
    else:
        assert expected.shape[1] >= expected.shape[2]
    for axes, flips in TURNS:
        stored, turned = restored(voxels, affine, axes, flips)
        for noise in (0, 1e-6):
            found = oriented(turned + noise * np.sin(np.arange(16)).reshape(4, 4), stored.shape, "portrait", rule)
            np.testing.assert_array_equal(found.view(stored), expected)


@pytest.mark.parametrize(
    ("signs", "origin", "angles", "made_up"),
    [
        ((1, 1, 1), (0, 0, 0), (0, 0, 0), True),
        ((-1, 1, 1), (7.5, 0, 0), (0, 0, 0), True),  # the same box, stored the other way round
        ((-1, -1, 1), (0, 0, 0), (0, 0, 0), False),
        ((1, 1, 1), (0.01, 0, 0), (0, 0, 0), False),
        ((1, 1, 1), (0, 0, 5), (0, 0, 0), False),
        ((1, 1, 1), (0, 0, 0), (2, 0, 0), False),
    ],
)
def test_what_counts_as_made_up(signs, origin, angles, made_up):
    shape = (6, 9, 4)
    _, affine = placed(shape, (1.5, 1.5, 10.0), signs, origin)
    affine[:3, :3] = rotation(*angles) @ affine[:3, :3]
    plain, found = slicing(affine, "stack"), oriented(affine, shape, "portrait", "stack")
    assert found.axes == plain.axes
    assert found.flips == (plain.flips if not made_up else (plain.flips[0], not plain.flips[1], not plain.flips[2]))


def test_only_tasks_that_say_so_are_seen_in_portrait():
    volume = Volume(np.arange(9 * 6 * 4, dtype=np.int16).reshape(9, 6, 4), np.diag([-1.5, -1.5, 10.0, 1.0]))
    assert SliceStack(volume, CARDIAC).native_size == (6, 9)
    assert SliceStack(volume, replace(CARDIAC, orientation="portrait")).native_size == (9, 6)


def test_planes_of_the_body_and_slices_between_them():
    axial = np.diag([1.5, 1.5, 8.0, 1.0])
    assert [body_plane(axial, axis, 12) for axis in range(3)] == ["sagittal", "coronal", "axial"]
    for tilt, plane in ((11, "axial"), (13, None), (45, None), (78.5, "coronal")):
        affine = np.eye(4)
        affine[:3, :3] = rotation(0, 0, tilt) * (1.5, 1.5, 8.0)
        assert body_plane(affine, 2, 12) == plane, tilt
        assert not along_world_axes(affine)
    assert along_world_axes(axial) and along_world_axes(-axial[:, [2, 0, 1, 3]])
