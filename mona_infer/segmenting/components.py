"""The largest connected component of each class; the others are usually false positives.

Voxels become runs along one axis, overlapping runs on neighbouring lines become edges, and edges become components by
hooking and pointer jumping.  All of it is NumPy on arrays as long as the number of runs, a few thousand for an organ,
so it needs no library and hardly any memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from mona_kernels.native import Labels, overlaps

Numbers = NDArray[np.int64]


def keep_largest(
    mask: Labels, only: Collection[int] | None = None, view: Callable[[Labels], Labels] = lambda part: part
) -> None:
    """Set all but the largest component of each class to 0, in place; neighbours share a face.

    `only`: the ids of the classes this is done to, if not to all.  Of components of the same size the first is kept;
    `view` (`Slicing.view`) makes that the same one in whichever order the mask is stored.
    """
    for label, box in extents(mask).items():
        if only is None or label in only:
            _keep_largest(view(mask[box]), label)


def extents(mask: Labels) -> dict[int, tuple[slice, ...]]:
    """The box around each class, in one pass over the mask."""
    turned = mask.flags.f_contiguous and not mask.flags.c_contiguous
    walked = mask.T if turned else mask  # as it lies in memory: else it would be copied
    boxes = {}
    for label, found in overlaps(walked, walked).items():
        box = tuple(slice(low, high + 1) for low, high in zip(found.box[:3], found.box[3:], strict=True))
        boxes[label] = box[::-1] if turned else box
    return boxes


def _keep_largest(part: Labels, label: int) -> None:
    inside = np.equal(part, label, order="C")
    line, first, last = runs(inside)
    piece = pieces(line, first, last, *inside.shape[1:])
    drop = piece != np.bincount(piece, weights=last - first).argmax()
    if drop.any():
        part[filled(line[drop], first[drop], last[drop], inside.shape)] = 0


def runs(inside: NDArray[np.bool_]) -> tuple[Numbers, Numbers, Numbers]:
    """Line, start and end of each run of True along the last axis; lines are counted over both other axes."""
    lines = inside.reshape(-1, inside.shape[-1])
    # a run starts and ends where a line, padded with background, changes
    steps = np.diff(np.pad(lines.view(np.int8), ((0, 0), (1, 1))), axis=1)
    line, first = np.nonzero(steps == 1)
    return line, first, np.nonzero(steps == -1)[1]


def filled(line: Numbers, first: Numbers, last: Numbers, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The opposite of `runs`: True in the runs, which do not touch each other, and False elsewhere."""
    steps = np.zeros((int(np.prod(shape[:-1])), shape[-1] + 1), np.int8)
    steps[line, first] = 1
    steps[line, last] = -1
    return np.cumsum(steps, axis=1, dtype=np.int8)[:, :-1].astype(bool).reshape(shape)


def pieces(line: Numbers, first: Numbers, last: Numbers, height: int, width: int, *, across: bool = True) -> Numbers:
    """The component of each run, numbered by one of its runs; `across` planes of `height` lines, or each for itself."""
    start, stop = line * width + first, line * width + last  # sorted, as lines and their runs are
    edges = []
    below = [(1, line % height < height - 1), (height, np.ones(len(line), bool))]
    for down, there in below if across else below[:1]:
        here = np.nonzero(there)[0]
        moved, ended = start[here] + down * width, stop[here] + down * width
        low = np.searchsorted(stop, moved, side="right")
        count = np.searchsorted(start, ended, side="left") - low
        count = np.maximum(count, 0)
        a = np.repeat(here, count)
        offset = np.arange(len(a)) - np.repeat(np.cumsum(count) - count, count)
        edges.append((a, np.repeat(low, count) + offset))
    a, b = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    piece = np.arange(len(line))
    while True:
        least = np.minimum(piece[a], piece[b])
        before = piece.copy()
        np.minimum.at(piece, before[a], least)
        np.minimum.at(piece, before[b], least)
        while not np.array_equal(piece, piece[piece]):
            piece = piece[piece]
        if np.array_equal(piece, before):
            return piece
