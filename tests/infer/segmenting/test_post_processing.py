"""Filling holes against scipy, slice by slice, and the largest piece of chosen classes."""

import numpy as np
import pytest
from helpers.orientations import TURNS, restored
from scipy import ndimage

from mona_infer.geometry.slicing import slicing
from mona_kernels.native import fill_holes, keep_largest, slice_counts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("order", ["C", "F"])
def test_holes_are_those_of_scipy(seed, order):
    """Background only: other classes in a hole stay what they are."""
    rng = np.random.default_rng(seed)
    mask = rng.choice(np.arange(4, dtype=np.uint8), (5, 17, 23), p=[0.25, 0.55, 0.15, 0.05])
    mask[2] = 0
    wanted = mask.copy()
    for plane in wanted:
        plane[ndimage.binary_fill_holes(plane == 1) & (plane == 0)] = 1
    assert (wanted != mask).any()
    found = np.array(mask, order=order)
    fill_holes(found, 1)
    np.testing.assert_array_equal(found, wanted)


def test_a_view_of_a_stored_mask_is_filled_in_place():
    stored = np.zeros((9, 8, 3), np.uint8, order="F")
    view = stored.transpose(2, 1, 0)[:, ::-1]
    view[1, 2:6, 2:7] = 5
    view[1, 3:5, 4:6] = 0
    view[0, 2:6, 2] = 5  # an open bow in another slice
    fill_holes(view, 5)
    assert (view[1, 2:6, 2:7] == 5).all()
    assert (stored == 5).sum() == 20 + 4


def test_nothing_and_everything():
    for value in (0, 3):
        mask = np.full((2, 5, 6), value, np.uint8)
        fill_holes(mask, 3)
        assert (mask == value).all()


def test_holes_touching_the_border_or_only_a_corner():
    mask = np.zeros((1, 5, 5), np.uint8)
    mask[0, 1, 2] = mask[0, 2, 1] = mask[0, 2, 3] = mask[0, 3, 2] = 1  # closed through corners, not through sides
    mask[0, 0, 1] = mask[0, 1, 0] = 1  # the picture's corner is open to the outside
    fill_holes(mask, 1)
    assert mask[0, 2, 2] == 1
    assert mask[0, 0, 0] == 0


def test_the_largest_piece_of_some_classes_only():
    mask = np.zeros((1, 3, 9), np.uint8)
    mask[0, 0, [0, 1, 4]] = 1
    mask[0, 2, [0, 1, 4]] = 2
    keep_largest(mask, only=(2,))
    assert mask[0, 0].tolist() == [1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert mask[0, 2].tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 0]


def test_of_pieces_of_one_size_the_same_is_kept_in_all_48_orders():
    mask, affine = np.zeros((7, 8, 9), np.uint8), np.diag([1.5, 1.4, 8.0, 1.0])
    mask[1:3, 1:3, 1:3] = mask[4:6, 1:3, 1:3] = mask[1:3, 5:7, 6:8] = 1
    view = slicing(affine, "stack").view
    kept = mask.copy()
    keep_largest(view(kept))
    assert kept.sum() == 8
    for axes, flips in TURNS:
        stored, turned = restored(mask, affine, axes, flips)
        found = np.array(stored, order="F")
        keep_largest(slicing(turned, "stack").view(found))
        np.testing.assert_array_equal(found, restored(kept, affine, axes, flips)[0])


def views(seed, shapes=((1, 1, 1), (1, 5, 9), (4, 1, 7), (3, 40, 1), (6, 9, 33), (5, 21, 8))):
    """Label maps as a scan may be stored, axes in any order and any of them flipped, both dtypes."""
    rng = np.random.default_rng(seed)
    for shape in shapes:
        for kind in (np.uint8, np.uint16):
            axes = rng.permutation(3)
            stored = rng.choice([0, 1, 2, 5], [shape[a] for a in axes], p=[0.45, 0.35, 0.1, 0.1]).astype(kind)
            yield np.flip(stored.transpose(np.argsort(axes)), np.nonzero(rng.integers(0, 2, 3))[0])


@pytest.mark.parametrize("seed", range(5))
def test_post_processing_of_any_order_is_that_of_a_plain_copy(seed):
    for view in views(seed):
        plain = np.ascontiguousarray(view)
        keep_largest(plain, (1, 5))
        keep_largest(view, (1, 5))
        np.testing.assert_array_equal(view, plain)
        wanted = plain.copy()
        for plane in wanted:
            plane[ndimage.binary_fill_holes(plane == 1) & (plane == 0)] = 1
        fill_holes(view, 1, threads=2)
        np.testing.assert_array_equal(view, wanted)


@pytest.mark.parametrize("seed", range(5))
def test_voxels_of_each_class_in_each_slice(seed):
    for view in views(seed):
        wanted = [[(plane == label).sum() for label in (5, 1, 300)] for plane in view]
        np.testing.assert_array_equal(slice_counts(view, (5, 1, 300)), wanted)


def test_what_is_no_label_map_is_refused():
    for wrong in (np.zeros((2, 3, 4), np.int32), np.zeros((2, 3), np.uint8)):
        for call in (lambda m: keep_largest(m), lambda m: fill_holes(m, 1), lambda m: slice_counts(m, [1])):
            with pytest.raises(ValueError, match="expected a uint8 or uint16 label map"):
                call(wrong)
