"""The first look finds a bright organ wherever it is, however the scan is stored, and says so if there is none."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.orientations import TURNS, restored, rotation

from mona_infer import Volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.geometry.windows import Box
from mona_infer.segmenting.first_look import FEWEST, certainty, find_box, look, look_frames
from mona_infer.task import CARDIAC, LOOK

LONG = replace(CARDIAC, long_side=192, window=(96, 96), first_look=True)
SPACED = replace(CARDIAC, spacing=1.5, window=(96, 96), first_look=True)


class Bright:
    """An engine that takes for the organ what is brighter than half."""

    description, batch = "bright", 16

    def __init__(self):
        self.given = []

    def run(self, slices):
        self.given.append(slices)
        return np.stack([0.5 - slices, slices - 0.5], axis=1)


def scan(shape=(20, 200, 160), organ=(slice(5, 15), slice(60, 100), slice(90, 120)), spacing=(1.4, 1.4, 8.0)):
    """Slices, rows and columns as the network will see them."""
    slices = np.random.default_rng(0).integers(0, 100, shape).astype(np.int16)
    slices[organ] += 800
    return Volume(slices.transpose(2, 1, 0), np.diag([-spacing[0], -spacing[1], spacing[2], 1.0]))


def edges(stack, organ):
    """The organ's box in frame pixels, as numbers with fractions."""
    scales = [frame / size for frame, size in zip(stack.frame, stack.native_size, strict=True)]
    return np.array(
        [organ[n].start * s for n, s in enumerate(scales)] + [organ[n].stop * s for n, s in enumerate(scales)]
    )


@pytest.mark.parametrize("task", [LONG, SPACED], ids=["pixels", "mm"])
@pytest.mark.parametrize(
    ("shape", "spacing"),
    [((20, 200, 160), (1.4, 1.4, 8.0)), ((3, 150, 300), (0.8, 1.2, 8.0)), ((60, 128, 128), (1.0, 1.0, 2.0))],
)
def test_an_organ_is_found_where_it_is(task, shape, spacing):
    _, height, width = shape
    organ = slice(height // 4, height // 2), slice(width // 2, 3 * width // 4)
    stack = SliceStack(scan(shape, (slice(1, shape[0] - 1), *organ), spacing), task)
    found, certain = look(stack, Bright())
    assert found is not None
    assert 0.5 < certain < 1
    wanted = edges(stack, organ)
    pixel = max(stack.frame) / LOOK  # of the coarse copy
    assert np.abs(np.array(found) - wanted).max() <= pixel + 1
    ((top, left),) = stack.aimed_at(found).windows
    assert top <= found.top
    assert left <= found.left
    assert found.bottom <= top + 96
    assert found.right <= left + 96


def test_the_picture_is_the_whole_slice_with_zeros_around():
    volume = scan()
    stack = SliceStack(volume, LONG)
    frames = look_frames(stack)
    assert frames.shape == (20, LOOK, LOOK)
    assert frames.dtype == np.float32
    assert not frames[:, :, :6].any()  # 160 of 200 columns: 51 of 64
    assert not frames[:, :, 57:].any()
    assert frames[:, :, 6:57].all(axis=0).any()
    values = volume.voxels.transpose(2, 1, 0).astype(float)
    assert frames.mean() * LOOK / 51 == pytest.approx((values.mean() - stack.low) / (stack.high - stack.low), rel=1e-5)
    in_mm = look_frames(SliceStack(scan((4, 100, 100), spacing=(1.0, 2.0, 8.0)), SPACED))
    assert not in_mm[:, :, :16].any()
    assert in_mm[:, 0, 16:48].any()
    in_pixels = look_frames(SliceStack(scan((4, 100, 100), spacing=(1.0, 2.0, 8.0)), LONG))
    assert in_pixels[:, 0, :16].any()


def test_of_many_slices_some_are_looked_at_evenly_spaced():
    shape = (300, 20, 24)
    slices = np.broadcast_to(np.arange(300, dtype=np.int16)[:, None, None], shape)
    stack = SliceStack(Volume(slices.transpose(2, 1, 0).copy(), np.diag([-1.0, -1.0, 8.0, 1.0])), LONG)
    frames = look_frames(stack)
    seen = np.rint(frames.max(axis=(1, 2)) * 299)
    assert len(seen) == 48
    np.testing.assert_array_equal(seen, np.rint(np.linspace(0, 299, 48)))


def test_one_scan_in_48_orders_has_one_box():
    affine = np.eye(4)
    affine[:3, :3] = rotation(10, -20, 30) @ np.diag([1.5, 1.5, 8.0])
    voxels = scan().voxels
    stacks = (SliceStack(Volume(*restored(voxels, affine, axes, flips)), LONG) for axes, flips in TURNS)
    ((box, certain),) = {look(stack, Bright()) for stack in stacks}
    assert box is not None
    assert certain > 0.5


def test_crops_and_padding_move_the_box_with_the_organ():
    """In millimetres the window sees the same part of the patient, to a coarse pixel, whatever is around it."""
    volume = scan(spacing=(1.5, 1.5, 8.0))  # a pixel of the scan is one of the frame
    stack = SliceStack(volume, SPACED)
    base = np.array(look(stack, Bright())[0])
    for rows, columns in (((20, 10), (60, 20)), ((-40, -50), (-10, -90)), ((30, -70), (-80, 0))):
        slices = volume.voxels.transpose(2, 1, 0)
        cut = slices[:, max(0, rows[0]) : 200 - max(0, rows[1]), max(0, columns[0]) : 160 - max(0, columns[1])]
        around = [(0, 0), *((max(0, -a), max(0, -b)) for a, b in (rows, columns))]
        moved = Volume(np.pad(cut, around).transpose(2, 1, 0), volume.affine)
        other = SliceStack(moved, SPACED)
        found = np.add(look(other, Bright())[0], [rows[0], columns[0], rows[0], columns[0]])
        pixel = max(*stack.frame, *other.frame) / LOOK
        assert np.abs(found - base).max() <= pixel + 1


def blobs(*places, n=6):
    """Logits of the first look with the organ at (slice, row, column, size)."""
    organ = np.full((n, LOOK, LOOK), -1.0, np.float32)
    for k, row, column, size in places:
        organ[k, row : row + size, column : column + size] = 1
    return np.stack([-organ, organ], axis=1)


def test_the_box_is_around_the_largest_piece_over_all_slices():
    square = (128, 128)
    assert find_box(blobs((1, 10, 20, 4), (4, 40, 50, 6)), square) == Box(80, 100, 92, 112)
    through = blobs((1, 10, 20, 4), (2, 12, 20, 4), (3, 12, 20, 4), (5, 40, 50, 6))  # 48 voxels in three slices
    assert find_box(through, square) == Box(20, 40, 32, 48)


def test_the_box_is_in_the_frames_pixels_rounded_outwards():
    logits = blobs((1, 31, 33, 3), (2, 31, 33, 3))
    assert find_box(logits, (64, 64)) == Box(31, 33, 34, 36)
    assert find_box(logits, (100, 100)) == Box(48, 51, 54, 57)  # 48.4, 51.6, 53.1, 56.25
    assert find_box(logits, (64, 32)) == Box(31, 17, 34, 20)  # the picture begins at column 16
    assert find_box(logits, (7, 64)) == Box(3, 33, 6, 36)  # it begins at row 28


def test_certainty_is_the_mean_probability_in_the_largest_piece():
    assert certainty(blobs()) == 0
    one, other = blobs((1, 10, 20, 4)), blobs((1, 10, 20, 4), (4, 40, 50, 3))
    assert certainty(one) == pytest.approx(1 / (1 + np.exp(-2)))
    other[4] *= 5  # surer, but not the organ
    assert certainty(other) == pytest.approx(certainty(one))
    other[1, 1, 10:14, 20:22] = 0  # half of the organ: 1 above the background, not 2
    assert certainty(other) == pytest.approx((1 / (1 + np.exp(-2)) + 1 / (1 + np.exp(-1))) / 2)
    assert certainty(1000 * one) == 1  # no overflow


def test_too_few_voxels_and_what_is_outside_the_picture_are_nothing():
    assert find_box(blobs(), (64, 64)) is None
    few = blobs((1, 10, 20, 1))
    few[1, 1, 10, 20 : 20 + FEWEST - 1] = 2
    assert find_box(few, (64, 64)) is None
    few[1, 1, 10, 20 : 20 + FEWEST] = 2
    assert find_box(few, (64, 64)) == Box(10, 20, 11, 20 + FEWEST)
    assert find_box(few, (64, 16)) is None  # its picture is columns 24 to 40
    assert find_box(np.full((3, 2, LOOK, LOOK), np.nan, np.float32), (64, 64)) is None
    with pytest.raises(ValueError, match=r"expected logits \(n, 2, 64, 64\)"):
        find_box(np.zeros((3, 3, LOOK, LOOK), np.float32), (64, 64))


def test_batches_change_nothing():
    stack = SliceStack(scan(), LONG)
    one, all_at_once = Bright(), Bright()
    assert look(stack, one, 1) == look(stack, all_at_once)
    assert max(map(len, one.given)) == 1
    assert max(map(len, all_at_once.given)) == 16
