"""Storage order never changes what the network sees: 48 axis orders of the same scan, at many angles."""

import numpy as np
import pytest
from helpers.orientations import ANGLES, TURNS, restored, rotation

from mona_infer import InputError
from mona_infer.geometry.slicing import WORLD_AXES, slicing


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
