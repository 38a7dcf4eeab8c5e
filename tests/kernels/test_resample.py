"""Resampling against scipy.ndimage.zoom, and the fused argmax against resizing first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import zoom

from mona_kernels import native

SIZES = st.integers(1, 40)


def zoomed(plane, size, order):
    # mode="nearest": with the default scipy turns a last pixel that rounding pushed off the grid into 0
    out = zoom(plane, (size[0] / plane.shape[0], size[1] / plane.shape[1]), order=order, mode="nearest")
    assert out.shape == size
    return out


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 2**32 - 1))
def test_linear_agrees_with_scipy(h, w, big_h, big_w, seed):
    slices = np.random.default_rng(seed).normal(0, 100, (2, h, w)).astype(np.float32)
    ours = native.resize(slices, (big_h, big_w), order=1)
    for a, b in zip(ours, slices, strict=True):
        np.testing.assert_allclose(a, zoomed(b, (big_h, big_w), 1), rtol=1e-5, atol=1e-4)


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from([np.uint8, np.uint16, np.int16, np.float32]))
def test_nearest_is_scipys_to_the_bit(h, w, big_h, big_w, dtype):
    slices = np.random.default_rng(h * 41 + w).integers(0, 200, (2, h, w)).astype(dtype)
    ours = native.resize(slices, (big_h, big_w), order=0)
    assert ours.dtype == dtype
    for a, b in zip(ours, slices, strict=True):
        np.testing.assert_array_equal(a, zoomed(b, (big_h, big_w), 0))


@pytest.mark.parametrize("native_size", [(256, 216), (216, 256), (174, 208), (512, 512), (428, 512)])
@pytest.mark.parametrize("order", [0, 1])
def test_sizes_of_real_scans(native_size, order):
    plane = np.random.default_rng(0).random(native_size).astype(np.float32)
    there = native.resize(plane[None], (256, 256), order=order)[0]
    np.testing.assert_allclose(there, zoomed(plane, (256, 256), order), atol=1e-6)
    back = native.resize(there[None], native_size, order=order)[0]
    np.testing.assert_allclose(back, zoomed(there, native_size, order), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 4, 300])
@pytest.mark.parametrize("size", [(24, 24), (61, 40), (7, 90), (1, 1)])
def test_argmax_is_that_of_the_resized_logits(classes, size):
    logits = np.random.default_rng(classes).normal(size=(3, classes, 24, 24)).astype(np.float32)
    for threads in (1, 2):
        found = native.argmax_resized(logits, size, order=1, threads=threads)
        resized = np.stack([native.resize(item, size, order=1) for item in logits])
        np.testing.assert_array_equal(found, resized.argmax(axis=1))
        found = native.argmax_resized(logits, size, order=0, threads=threads)
        assert found.dtype == (np.uint8 if classes <= 256 else np.uint16)
        small = logits.argmax(axis=1).astype(np.uint16)
        np.testing.assert_array_equal(found, native.resize(small, size, order=0))


def test_argmax_gives_the_first_of_equal_classes():
    assert not native.argmax_resized(np.zeros((1, 3, 4, 4), np.float32), (9, 9), order=1).any()


def test_non_contiguous_input_is_read_as_it_is_indexed():
    stored = np.random.default_rng(1).random((20, 30, 5)).astype(np.float32)
    view = stored.transpose(2, 1, 0)[:, ::-1]
    np.testing.assert_array_equal(
        native.resize(view, (11, 13), order=1), native.resize(np.ascontiguousarray(view), (11, 13), order=1)
    )


@pytest.mark.parametrize(
    ("slices", "size", "order"),
    [
        (np.zeros((4, 4), np.float32), (8, 8), 1),
        (np.zeros((1, 0, 4), np.float32), (8, 8), 1),
        (np.zeros((1, 4, 4), np.float32), (0, 8), 1),
        (np.zeros((1, 4, 4), np.float32), (8, 8), 3),
        (np.zeros((1, 4, 4), np.uint8), (8, 8), 1),
    ],
)
def test_wrong_calls_are_refused_in_words(slices, size, order):
    with pytest.raises((ValueError, TypeError), match=r"expected|float32"):
        native.resize(slices, size, order=order)
