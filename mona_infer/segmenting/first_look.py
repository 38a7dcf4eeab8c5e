"""The first look: a small network finds the organ in a coarse copy of the scan, and the window is aimed at it.

Training and `mona segment` both call `look_frames` and `find_box`, so they cannot disagree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Engine, in_batches
from mona_infer.geometry.probabilities import Logits
from mona_infer.geometry.slicing import spread
from mona_infer.geometry.stack import SliceStack
from mona_infer.geometry.windows import Box
from mona_infer.task import LOOK
from mona_kernels.native import keep_largest, resample
from mona_kernels.taps import taps

FEWEST = 8  # voxels of the coarse copy; less is noise

UNCERTAIN = "the first look is less certain where the organ is than in almost all training scans; check the mask"
NOTHING = "the first look found no organ in this scan: the window is at the centre of the slices; check the mask"


def look_frames(stack: SliceStack) -> NDArray[np.float32]:
    """Evenly spaced slices of a scan (n, 64, 64), at most 48: whole, their shape kept, zeros around them.

    Their shape is that of the stack's frame: square pixels if the Task has a spacing, else the pixels of the scan.
    """
    chosen = spread(range(len(stack)))
    rows, columns = (slice(start, start + side) for start, side in _picture(stack.frame))
    frames = np.zeros((len(chosen), LOOK, LOOK), np.float32)
    for n, k in enumerate(chosen):
        frames[n, rows, columns] = stack.read_at((rows.stop - rows.start, columns.stop - columns.start), k, k + 1)[0]
    return frames


def coarse(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Whole slices at the network's scale (n, *frame) as `look_frames` makes them of a scan: for training."""
    rows, columns = (slice(start, start + side) for start, side in _picture((values.shape[1], values.shape[2])))
    frames = np.zeros((len(values), LOOK, LOOK), np.float32)
    sides = rows.stop - rows.start, columns.stop - columns.start
    down, across = (taps(n, new) for n, new in zip(values.shape[1:], sides, strict=True))
    frames[:, rows, columns] = resample(values, down, across)
    return frames


def find_box(logits: Logits, frame: tuple[int, int]) -> Box | None:
    """The box around the organ, in pixels of `frame`, from logits (n, 2, 64, 64) of all `look_frames`.

    It is that of the largest connected piece over all slices: one box for the whole scan.  None if there is none.
    """
    picture = _picture(frame)
    organ = organ_of(within(logits, frame))
    if int(organ.sum()) < FEWEST:
        return None
    (top, bottom), (left, right) = (
        _outwards(np.nonzero(organ.any(axis=axes))[0], side, whole)
        for axes, (_, side), whole in zip(((0, 2), (0, 1)), picture, frame, strict=True)
    )
    return Box(top, left, bottom, right)


def within(logits: Logits, frame: tuple[int, int]) -> Logits:
    """The part of logits (n, 2, 64, 64) that shows the slice: around it there is nothing to find."""
    if logits.shape[1:] != (2, LOOK, LOOK):
        raise ValueError(f"expected logits (n, 2, {LOOK}, {LOOK}), found {logits.shape}")
    rows, columns = (slice(start, start + side) for start, side in _picture(frame))
    return logits[:, :, rows, columns]


def organ_of(logits: Logits) -> NDArray[np.uint8]:
    """1 in the largest connected piece of the organ over all slices, else 0 (n, rows, columns)."""
    organ = np.ascontiguousarray(logits[:, 1] > logits[:, 0]).view(np.uint8)
    keep_largest(organ)
    return organ


def certainty(logits: Logits) -> float:
    """The mean probability in the organ's largest piece; 0 if there is none."""
    organ = organ_of(logits) > 0
    chance = 1 / (1 + np.exp(np.clip(logits[:, 0] - logits[:, 1], -80, 80)))
    return float(chance[organ].mean()) if organ.any() else 0.0


def look(stack: SliceStack, engine: Engine, batch: int = 0) -> tuple[Box | None, float]:
    """Where in the stack's frame the organ is, or None if the small network finds none; and how certain it is."""
    logits = np.concatenate([answer for _, answer in in_batches(engine, look_frames(stack), batch)])
    return find_box(logits, stack.frame), certainty(within(logits, stack.frame))


def _picture(frame: tuple[int, int]) -> list[tuple[int, int]]:
    """Start and length of a frame's rows and columns in the 64x64 picture: its long side fills it."""
    sides = [max(1, round(side * LOOK / max(frame))) for side in frame]
    return [((LOOK - side) // 2, side) for side in sides]


def _outwards(places: NDArray[np.intp], side: int, whole: int) -> tuple[int, int]:
    """First and last place of `side` as a range of `whole` pixels that holds both."""
    low, high = int(places[0]), int(places[-1]) + 1
    return low * whole // side, -(-high * whole // side)
