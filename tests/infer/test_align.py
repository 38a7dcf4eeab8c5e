"""Files of one volume in different storage orders are compared voxel by voxel; different grids are refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.orientations import TURNS, restored, rotation

from mona_infer import InputError, Volume
from mona_infer.geometry.align import on_grid_of

AFFINE = np.eye(4)
AFFINE[:3, :3] = rotation(20, 30, 40) * (1.2, 1.4, 7.0)
AFFINE[:3, 3] = 9, 8, 7
SCAN = Volume(np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6), AFFINE, source="ref.nii")


@pytest.mark.parametrize(("axes", "flips"), TURNS)
def test_every_storage_order_is_brought_back(axes, flips):
    voxels, turned = restored(SCAN.voxels, AFFINE, axes, flips)
    found = on_grid_of(Volume(voxels, turned + 1e-6), SCAN)
    np.testing.assert_array_equal(found.voxels, SCAN.voxels)
    np.testing.assert_array_equal(found.affine, AFFINE)


@pytest.mark.parametrize(
    "change", [np.diag([1.01, 1, 1, 1]), rotation(2, 0, 0), np.array([0.5, 0, 0])], ids=["spacing", "angle", "shift"]
)
def test_another_grid_is_refused_with_both_described(change):
    affine = AFFINE.copy()
    if change.shape == (3,):
        affine[:3, 3] += change
    else:
        affine[:3, :3] = affine[:3, :3] @ change[:3, :3]
    with pytest.raises(InputError, match=r"not on the same grid: 4x5x6 voxels .* and 4x5x6 voxels"):
        on_grid_of(replace(SCAN, affine=affine), SCAN)


def test_another_shape_is_refused():
    with pytest.raises(InputError, match="not on the same grid"):
        on_grid_of(Volume(SCAN.voxels[:, :, :5], AFFINE), SCAN)
