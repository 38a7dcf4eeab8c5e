"""Slices at a scale of their own: what the network sees, what comes back, and where, on every grid."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.orientations import ANGLES, TURNS, restored, rotation

from mona_infer import InputError, Volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.geometry.windows import Box
from mona_infer.task import LabelClass, Task
from mona_kernels import native
from mona_kernels.native import taps

FOUR = tuple(LabelClass(n, f"c{n}", (n, n, n)) for n in range(4))
LONG = Task("long side", FOUR, long_side=48, window=(24, 20))
SPACED = Task("spacing", FOUR, spacing=1.3, window=(24, 20))
TASKS = [LONG, SPACED, replace(LONG, window=(60, 60)), replace(SPACED, window=(17, 64), first_look=True)]
IDS = [f"{t.name} {t.window}" for t in TASKS]


def upright(shape, spacing=(1.0, 1.0, 9.0), seed=0):
    """A scan whose stored voxels, transposed, are its slices: nothing is turned between a test and the stack."""
    slices, rows, columns = shape
    voxels = np.random.default_rng(seed).integers(0, 900, (columns, rows, slices)).astype(np.int16)
    return Volume(voxels, np.diag([-spacing[0], -spacing[1], spacing[2], 1.0]))


def padded(frames, windows, window):
    """Windows cut from whole frames, with zeros around these."""
    margin = 200
    around = np.pad(frames, ((0, 0), (margin, margin), (margin, margin)))
    cut = [around[:, margin + t : margin + t + window[0], margin + c : margin + c + window[1]] for t, c in windows]
    return np.stack(cut, axis=1).reshape(-1, *window)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
@pytest.mark.parametrize("size", [(51, 33), (40, 90), (200, 201), (20, 20)], ids=str)
def test_the_network_sees_windows_of_the_resampled_slice(task, size):
    volume = upright((5, *size), (1.1, 0.9, 9.0))
    stack = SliceStack(volume, task)
    assert stack.frame == task.frame(size, (0.9, 1.1))
    values = volume.voxels.transpose(2, 1, 0).astype(np.float32)
    values = np.clip((values - stack.low) / (stack.high - stack.low), 0, 1).astype(np.float32)
    whole = native.resample(values, taps(size[0], stack.frame[0]), taps(size[1], stack.frame[1]))
    np.testing.assert_allclose(stack.read_whole(1, 4), whole[1:4], atol=1e-6)
    found = stack.read(1, 4)
    assert found.shape == (3 * len(stack.windows), *task.input_size)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, padded(stack.read_whole(1, 4), stack.windows, task.input_size))
    aimed = stack.aimed_at(Box(3, 5, 9, 12))
    np.testing.assert_array_equal(aimed.read(0, 2), padded(stack.read_whole(0, 2), aimed.windows, task.input_size))
    assert len(aimed.windows) == 1


def test_only_the_part_that_a_window_needs_is_read(monkeypatch):
    volume = upright((3, 400, 300))
    stack = SliceStack(volume, replace(LONG, long_side=100, first_look=True))
    read, original = [], Volume.intensities
    monkeypatch.setattr(Volume, "intensities", lambda self, plane: read.append(plane.shape) or original(self, plane))
    stack.read(0, 3)
    assert read == [(3, 96, 80)]


@pytest.mark.parametrize("task", TASKS, ids=IDS)
@pytest.mark.parametrize("size", [(51, 33), (40, 90), (200, 201), (20, 20)], ids=str)
def test_logits_come_back_linearly_where_a_window_is(task, size):
    """Windows cut out of one picture of logits give the mask of that picture, and background elsewhere."""
    volume = upright((3, *size), (1.1, 0.9, 9.0))
    for box in (None, Box(3, 5, 9, 12)):
        stack = SliceStack(volume, task) if box is None else SliceStack(volume, task).aimed_at(box)
        picture = np.random.default_rng(2).normal(size=(3, 4, *stack.frame)).astype(np.float32)
        around = padded(picture.reshape(12, *stack.frame), stack.windows, task.input_size)
        windows = around.reshape(3, 4, -1, *task.input_size).swapaxes(1, 2).reshape(-1, 4, *task.input_size)
        mask = stack.empty_mask()
        seen = stack.restore(mask, 0, windows)
        rows, columns = (taps(a, b) for a, b in zip(stack.frame, size, strict=True))
        resampled = np.stack([native.resample(item, rows, columns) for item in picture])
        second, best = np.sort(resampled, axis=1)[:, -2:].swapaxes(0, 1)
        # between the centres of the outermost pixels that the windows see, they cannot be told from the whole
        inside, outside = [], []
        for n, (side, frame) in enumerate(zip(size, stack.frame, strict=True)):
            at = (np.arange(side) + 0.5) * frame / side
            low = max(0, min(w[n] for w in stack.windows))
            high = min(frame, max(w[n] for w in stack.windows) + task.input_size[n])
            reach = max(0.5, 0.5 * frame / side)
            inside.append((at >= low + (low > 0) * reach) & (at <= high - (high < frame) * reach))
            outside.append((at < low - 1e-9) | (at >= high - 1e-9))
        inner = np.logical_and.outer(*inside) & (best - second > 1e-4)
        labels = mask.transpose(2, 1, 0)
        np.testing.assert_array_equal(labels[inner], resampled.argmax(axis=1)[inner])
        assert inner.any()
        assert not labels[:, np.logical_or.outer(*outside)].any()
        assert seen.shape[:2] == (3, 4)


def test_overlapping_windows_are_blended():
    """Two windows that disagree: each has its way at its own end, and between them it changes hands once."""
    volume = upright((1, 24, 36))
    stack = SliceStack(volume, replace(LONG, long_side=36, window=(24, 24)))
    assert stack.windows == ((0, 0), (0, 12))
    logits = np.zeros((2, 4, 24, 24), np.float32)
    logits[0, 1] = logits[1, 2] = 1
    mask = stack.empty_mask()
    stack.restore(mask, 0, logits)
    row = mask[:, 5, 0]
    np.testing.assert_array_equal(row, np.repeat([1, 2], 18))


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_probabilities_agree_with_the_mask_and_are_certain_outside(task):
    volume = upright((3, 60, 70))
    stack = SliceStack(volume, task).aimed_at(Box(4, 4, 30, 10))
    count = 3 * len(stack.windows)
    logits = np.random.default_rng(0).normal(size=(count, 4, *task.input_size)).astype(np.float32)
    mask, maps = stack.empty_mask(), [np.zeros(volume.shape, np.uint8, order="F") for _ in FOUR]
    stack.restore(mask, 0, logits, maps)
    steps = np.stack(maps)
    np.testing.assert_array_equal(steps.argmax(axis=0), mask)
    np.testing.assert_array_equal(3 - steps[::-1].argmax(axis=0), mask)
    assert np.abs(steps.sum(axis=0, dtype=int) - 255).max() <= 4
    if task.window == (24, 20):
        assert (steps[:, 69, 59] == np.array([255, 0, 0, 0])[:, None]).all()


@pytest.mark.parametrize("task", TASKS[:2], ids=IDS[:2])
@pytest.mark.parametrize("angles", ANGLES[:4], ids=str)
def test_one_scan_stored_in_48_orders_gives_one_mask(task, angles):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) * (1.5, 1.4, 8.0)
    voxels = np.random.default_rng(0).integers(0, 900, (30, 35, 4)).astype(np.int16)
    masks = []
    for axes, flips in TURNS:
        stack = SliceStack(Volume(*restored(voxels, affine, axes, flips)), task).aimed_at(Box(3, 8, 20, 30))
        mask = stack.empty_mask()
        for start, given in stack.batches(3):
            stack.restore(mask, start, np.stack([c * given - c * c / 8 for c in range(4)], axis=1))
        back = mask.transpose(np.argsort(axes))
        masks.append(back[tuple(slice(None, None, -1 if f else None) for f in flips)])
    assert set(np.unique(masks[0])) == {0, 1, 2, 3}
    assert all(np.array_equal(mask, masks[0]) for mask in masks)


def test_sides_of_the_scan_may_be_cropped_or_padded_without_moving_what_is_seen():
    """With a spacing, a window around the same place sees the same pixels, wherever the scan's edges are."""
    volume, task = upright((2, 90, 80), (1.3, 1.3, 9.0)), replace(SPACED, first_look=True)
    whole = SliceStack(volume, task).aimed_at(Box(40, 40, 50, 50))
    cropped = Volume(volume.voxels[10:70, 20:], volume.affine)
    less = SliceStack(cropped, task).aimed_at(Box(20, 30, 30, 40))
    less.low, less.high = whole.low, whole.high
    np.testing.assert_allclose(less.read(0, 2), whole.read(0, 2), atol=1e-6)


def test_a_frame_beyond_reason_is_refused():
    volume = Volume(np.zeros((300, 300, 2), np.int16), np.diag([900.0, 900.0, 9000.0, 1.0]))
    with pytest.raises(InputError, match="is its spacing right"):
        SliceStack(volume, SPACED)


def test_a_scan_whose_pixels_are_larger_than_the_window_is_background_where_it_sees_no_centre():
    volume = Volume(np.zeros((2, 2, 2), np.int16), np.diag([900.0, 900.0, 9000.0, 1.0]))
    stack = SliceStack(volume, replace(SPACED, first_look=True))
    mask, maps = stack.empty_mask(), [np.zeros(volume.shape, np.uint8) for _ in FOUR]
    assert not stack.read(0, 2).any()
    stack.restore(mask, 0, np.ones((2, 4, 24, 20), np.float32), maps)
    assert not mask.any()
    assert (maps[0] == 255).all()


def test_logits_of_another_shape_are_refused():
    stack = SliceStack(upright((3, 60, 70)), LONG)
    for shape in ((4, 4, 24, 20), (len(stack.windows), 4, 20, 24)):
        with pytest.raises(ValueError, match=r"window\(s\) \(24, 20\)"):
            stack.restore(stack.empty_mask(), 0, np.zeros(shape, np.float32))


def test_the_window_of_squeezed_slices_stays_where_it_is():
    stack = SliceStack(upright((3, 60, 70)), Task("squeezed", FOUR, size=(48, 40), window=(24, 20)))
    assert (stack.frame, stack.windows) == ((48, 40), ((12, 10),))
    assert stack.read_whole(0, 2).shape == (2, 48, 40)
    with pytest.raises(ValueError, match="cannot be moved"):
        stack.aimed_at(None)
