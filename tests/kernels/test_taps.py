"""Resampling by areas: against means written out, torch where it grows, and any part against the whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_kernels import native
from mona_kernels.native import Taps, taps

SIDES = st.integers(1, 40)


def matrix(size, out):
    """(out, size): the share of each input pixel in each output pixel, by the definition."""
    shares = np.zeros((out, size))
    for k in range(out):
        if out <= size:  # the mean over the area
            low, high = k * size / out, (k + 1) * size / out
            for i in range(size):
                shares[k, i] = max(0.0, min(high, i + 1) - max(low, i)) * out / size
        else:  # linear between centres, the outermost repeated
            at = min(max((k + 0.5) * size / out - 0.5, 0), size - 1)
            low = min(int(at), size - 1)
            shares[k, low] += 1 - (at - low)
            shares[k, min(low + 1, size - 1)] += at - low
    return shares


def dense(found, size):
    shares = np.zeros((len(found), size))
    for t, weights in enumerate(found.weights):
        np.add.at(shares, (np.arange(len(found)), found.first + t), weights)
    return shares


@settings(max_examples=200, deadline=None)
@given(SIDES, SIDES, st.data())
def test_shares_are_those_of_the_definition(size, out, data):
    start = data.draw(st.integers(0, out))
    stop = data.draw(st.integers(start, out))
    found = taps(size, out, start, stop)
    assert len(found) == stop - start
    assert found.end <= size
    np.testing.assert_allclose(dense(found, size), matrix(size, out)[start:stop], atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 2**32 - 1))
def test_slices_are_resampled_by_the_shares_of_both_axes(h, w, rows, columns, seed):
    slices = np.random.default_rng(seed).normal(0, 100, (3, h, w)).astype(np.float32)
    wanted = matrix(h, rows) @ slices.astype(np.float64) @ matrix(w, columns).T
    for threads in (1, 2):
        found = native.resample(slices, taps(h, rows), taps(w, columns), threads=threads)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("size", "out"), [((20, 31), (47, 60)), ((96, 96), (97, 301)), ((1, 5), (9, 5))])
def test_where_it_grows_it_is_torchs_bilinear(size, out):
    slices = np.random.default_rng(0).random((2, *size), np.float32)
    wanted = torch.nn.functional.interpolate(torch.tensor(slices)[None], size=out, mode="bilinear")[0].numpy()
    found = native.resample(slices, *(taps(a, b) for a, b in zip(size, out, strict=True)))
    np.testing.assert_allclose(found, wanted, atol=1e-5)  # torch computes places in float32


def test_halves_are_means_and_the_same_size_changes_no_bit():
    slices = np.random.default_rng(0).random((2, 8, 12), np.float32)
    halved = native.resample(slices, taps(8, 4), taps(12, 6))
    np.testing.assert_allclose(halved, slices.reshape(2, 4, 2, 6, 2).mean(axis=(2, 4)), rtol=1e-6)
    np.testing.assert_array_equal(native.resample(slices, taps(8, 8), taps(12, 12)), slices)


@pytest.mark.parametrize(("size", "out"), [(200, 96), (512, 192), (60, 192), (7, 7), (96, 95)])
def test_a_part_has_the_bits_of_the_whole(size, out):
    """And it needs only the pixels that its taps name."""
    slices = np.random.default_rng(1).random((2, size, size), np.float32)
    whole = native.resample(slices, taps(size, out), taps(size, out))
    for start, stop in ((0, out), (out // 3, out // 2), (out - 3, out), (0, 1)):
        rows = taps(size, out, start, stop)
        part = np.ascontiguousarray(slices[:, rows.begin : rows.end])
        found = native.resample(part, rows.within(rows.begin, rows.end), taps(size, out))
        np.testing.assert_array_equal(found, whole[:, start:stop])


@settings(max_examples=100, deadline=None)
@given(SIDES, SIDES, st.data())
def test_within_repeats_the_edge_of_what_is_at_hand(size, out, data):
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start + 1, size))
    line = np.random.default_rng(size).random(size).astype(np.float32)
    repeated = line[np.clip(np.arange(size), start, stop - 1)]
    one = taps(1, 1)
    found = native.resample(line[None, start:stop, None], taps(size, out).within(start, stop), one)
    wanted = native.resample(repeated[None, :, None], taps(size, out), one)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 4, 300])
@pytest.mark.parametrize("size", [(24, 24), (61, 40), (7, 90), (1, 1)])
def test_argmax_is_that_of_the_resampled_logits(classes, size):
    logits = np.random.default_rng(classes).normal(size=(3, classes, 24, 20)).astype(np.float32)
    rows, columns = taps(24, size[0]), taps(20, size[1])
    resampled = np.stack([native.resample(item, rows, columns) for item in logits])
    second, best = np.sort(resampled, axis=1)[:, -2:].swapaxes(0, 1)
    clear = best - second > 1e-5  # rows and columns are resampled in the other order: elsewhere rounding may decide
    assert clear.mean() > 0.99
    for threads in (1, 2):
        found = native.argmax_resampled(logits, rows, columns, threads=threads)
        assert found.dtype == (np.uint8 if classes <= 256 else np.uint16)
        np.testing.assert_array_equal(found[clear], resampled.argmax(axis=1)[clear])


def in_order_of_the_kernel(logits, rows, columns):
    """Resampled logits by the same float32 sums in the same order: columns, then rows without weights of 0."""

    def gathered(x):
        return [weights * x[..., columns.first + t] for t, weights in enumerate(columns.weights)]

    across = sum(gathered(logits)[1:], start=gathered(logits)[0])
    out = np.zeros((*logits.shape[:2], len(rows), len(columns)), np.float32)
    for y in range(len(rows)):
        for t, weight in enumerate(rows.weights[:, y]):
            if weight:
                out[:, :, y] += weight * across[:, :, rows.first[y] + t]
    return out


def blocks(rng, shape, classes):
    """Large even areas, as a network gives them, with a little noise; and areas that only rounding tells apart."""
    n, h, w = shape
    coarse = rng.standard_normal((n, classes, -(-h // 8), -(-w // 8))) * 5
    even = np.kron(coarse, np.ones((8, 8)))[:, :, :h, :w]
    ties = np.round(even) + 1e-7 * rng.standard_normal(even.shape)
    return [
        even + 0.1 * rng.standard_normal(even.shape),
        ties,
        (coarse.argmax(1)[:, None] == 0) + np.zeros_like(coarse),
    ]


@pytest.mark.parametrize("size", [(31, 57), (90, 64), (64, 200), (9, 12), (48, 11)], ids=str)
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_even_areas_get_the_label_that_resampling_gives_bit_for_bit(size, classes):
    """They are not resampled: that must not show, even where two classes differ by a rounding error."""
    rng = np.random.default_rng(classes)
    for logits in blocks(rng, (3, 33, 29), classes):
        logits = np.ascontiguousarray(logits, np.float32)
        rows, columns = (taps(n, new) for n, new in zip(logits.shape[2:], size, strict=True))
        wanted = in_order_of_the_kernel(logits, rows, columns).argmax(axis=1)
        np.testing.assert_array_equal(native.argmax_resampled(logits, rows, columns), wanted)


def test_logits_that_are_not_finite_are_not_called_sure():
    logits = np.zeros((1, 2, 8, 8), np.float32)
    logits[0, 1, 2:6, 2:6] = np.inf
    logits[0, 0, 7, 7] = np.nan
    rows = taps(8, 20)
    with np.errstate(invalid="ignore"):
        resampled = in_order_of_the_kernel(logits, rows, rows)
    wanted = (resampled[:, 1] > resampled[:, 0]).astype(np.uint8)  # as the kernel compares: NaN is not larger
    np.testing.assert_array_equal(native.argmax_resampled(logits, rows, rows), wanted)


def test_the_first_of_equal_classes_wins():
    assert not native.argmax_resampled(np.zeros((1, 3, 4, 4), np.float32), taps(4, 9), taps(4, 2)).any()


@pytest.mark.parametrize("size", [(12, 10), (30, 41), (17, 25), (12, 41)], ids=str)
def test_labels_go_to_the_class_with_the_largest_share(size):
    classes = np.random.default_rng(2).integers(0, 4, (5, 24, 25)).astype(np.uint8)
    found = native.soft_labels(classes, size, 4)
    assert found.dtype == np.uint8
    planes = (classes[:, None] == np.arange(4)[:, None, None]).astype(np.float64)
    shares = matrix(24, size[0]) @ planes @ matrix(25, size[1]).T
    second, best = np.sort(shares, axis=1)[:, -2:].swapaxes(0, 1)
    clear = best - second > 1e-5
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(found[clear], shares.argmax(axis=1)[clear])


def test_of_equal_shares_the_first_class_wins():
    striped = np.tile(np.array([[3, 1], [1, 3]], np.uint8), (1, 4, 4))  # every 2x2 block is half 1, half 3
    np.testing.assert_array_equal(native.soft_labels(striped, (4, 4), 4), np.ones((1, 4, 4)))


def test_wrong_calls_are_refused_in_words():
    slices, eight = np.zeros((1, 8, 8), np.float32), taps(8, 4)
    for call in (
        lambda: taps(0, 4),
        lambda: taps(8, 4, 3, 5),
        lambda: taps(8, 4, 3, 2),
        lambda: native.resample(slices[0], eight, eight),
        lambda: native.resample(slices.astype(np.float64), eight, eight),
        lambda: native.resample(slices, taps(9, 4), eight),
        lambda: native.resample(slices, eight, Taps(np.array([-1], np.int32), np.ones((1, 1), np.float32))),
        lambda: native.argmax_resampled(slices, eight, eight),
        lambda: native.argmax_resampled(slices[None], eight, taps(9, 4)),
        lambda: native.soft_labels(slices, (4, 4), 2),
        lambda: native.soft_labels(slices.astype(np.uint8), (4, 4), 257),
    ):
        with pytest.raises(ValueError, match="expected"):
            call()
    assert native.resample(slices, taps(8, 4, 2, 2), eight).shape == (1, 0, 4)
