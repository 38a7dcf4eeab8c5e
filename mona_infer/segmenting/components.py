"""The largest connected component of each class; the others are usually false positives.

Voxels become runs along one axis, overlapping runs on neighbouring lines become edges, and edges become components by
hooking and pointer jumping.  All of it is NumPy on arrays as long as the number of runs, a few thousand for an organ,
so it needs no library and hardly any memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_kernels.native import Labels

Numbers = NDArray[np.int64]


def keep_largest(mask: Labels, only: Collection[int] | None = None) -> None:
    """Set all but the largest component of each class to 0, in place; neighbours share a face.

    `only`: the ids of the classes this is done to, if not to all.
    """
    walked = mask.T if mask.flags.f_contiguous else mask  # runs go along the axis that is contiguous in memory
    if not walked.flags.c_contiguous:
        raise ValueError("the mask must be contiguous in memory, in C or Fortran order")
    for label in np.unique(walked):
        if label and (only is None or label in only):
            _keep_largest(walked, label)


def _keep_largest(mask: Labels, label: np.unsignedinteger[Any]) -> None:
    _, height, width = mask.shape
    line, first, last = runs(mask == label)
    piece = pieces(line, first, last, height, width)
    sizes = np.bincount(piece, weights=last - first)
    drop = piece != sizes.argmax()
    flat = mask.reshape(-1, width)
    for n in np.nonzero(drop)[0]:
        flat[line[n], first[n] : last[n]] = 0


def runs(inside: NDArray[np.bool_]) -> tuple[Numbers, Numbers, Numbers]:
    """Line, start and end of each run of True along the last axis; lines are counted over both other axes."""
    lines = inside.reshape(-1, inside.shape[-1])
    # a run starts and ends where a line, padded with background, changes
    steps = np.diff(np.pad(lines.view(np.int8), ((0, 0), (1, 1))), axis=1)
    line, first = np.nonzero(steps == 1)
    return line, first, np.nonzero(steps == -1)[1]


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
