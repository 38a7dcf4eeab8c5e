"""Geometry on grids that hypothesis chooses: any rotation, spacing, origin, shape and storage order."""

import numpy as np
from helpers.orientations import TURNS, restored, rotation
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_infer import Volume
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.nifti_header import Header

ANGLE = st.floats(-180, 180)
MILLIMETRES = st.floats(0.1, 20)


@st.composite
def grids(draw):
    affine = np.eye(4)
    affine[:3, :3] = rotation(draw(ANGLE), draw(ANGLE), draw(ANGLE)) * [draw(MILLIMETRES) for _ in range(3)]
    affine[:3, 3] = [draw(st.floats(-1000, 1000)) for _ in range(3)]
    return affine, tuple(draw(st.integers(1, 5)) for _ in range(3))


@settings(max_examples=100, deadline=None)
@given(grids(), st.sampled_from(TURNS))
def test_any_storage_order_is_brought_back(grid, turn):
    affine, shape = grid
    scan = Volume(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape), affine)
    found = on_grid_of(Volume(*restored(scan.voxels, affine, *turn)), scan)
    np.testing.assert_array_equal(found.voxels, scan.voxels)
    np.testing.assert_array_equal(found.affine, affine)


@settings(max_examples=200, deadline=None)
@given(grids(), st.sampled_from(TURNS), st.sampled_from([348, 540]))
def test_any_grid_is_kept_by_a_nifti_header(grid, turn, size):
    affine, shape = grid
    _, affine = restored(np.empty(shape, np.uint8), affine, *turn)  # left-handed ones, too
    header = Header.empty(size)
    header.set_affine(affine)
    np.testing.assert_allclose(header.affine(), affine, rtol=1e-6, atol=1e-4 if size == 348 else 1e-12)
    if header["qform_code"]:  # given up where single precision is too coarse for the quaternion of a half turn
        np.testing.assert_allclose(header.qform(), affine, atol=1e-3)
