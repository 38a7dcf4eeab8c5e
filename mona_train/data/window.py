"""How much of a slice's centre is worth computing: organs often lie near the middle, and the margin costs as much."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mona_train.data.cache import Cache


def centred_window(cache: Cache, rows: Iterable[int], *, margin: float = 0.1, multiple: int = 16) -> tuple[int, int]:
    """The smallest centred window, the same share of both sides, that holds all foreground of labelled `rows`.

    The share is how far foreground reaches from the centre (0: there, 1: to the border) plus `margin`, since the
    organs of patients without labels reach further than those of the few with.  Each side is rounded up to a
    `multiple` that a network can halve often enough, up to the full side.  No foreground at all: the full size.
    """
    if margin < 0 or multiple < 1:
        raise ValueError(f"expected a margin of 0 or more and a multiple of 1 or more, found {margin} and {multiple}")
    found = {row: label for case in cache.cases for row, label in case.label_rows.items()}
    _, height, width = cache.labels.shape
    foreground = np.zeros((height, width), bool)
    for row in rows:
        if row not in found:
            raise ValueError(f"row {row} has no label and says nothing about a window")
        foreground |= cache.labels[found[row]] > 0
    if not foreground.any():
        return height, width
    spans = [_span(foreground, axis) for axis in (0, 1)]
    # Positions are those of pixel centres, so a pixel on the border reaches a little less than 1.
    share = margin + max(max(side - 1 - 2 * low, 2 * high - side + 1) / side for low, high, side in spans)
    height, width = (_side(share * side, high, side, multiple) for _, high, side in spans)
    return height, width


def _span(foreground: NDArray[np.bool_], axis: int) -> tuple[int, int, int]:
    """First and last place of foreground along an axis, and the axis's length."""
    places = np.flatnonzero(foreground.any(axis=1 - axis))
    return int(places[0]), int(places[-1]), foreground.shape[axis]


def _side(wanted: float, high: int, side: int, multiple: int) -> int:
    wanted = round(wanted, 6)  # 0.1 + 0.05 of 100 is 15, not 15.000000000000002
    # Without a margin `wanted` ends at the centre of the outermost pixel.  `centred` leaves out the smaller half of
    # the rest before the window, which takes that pixel in, and the larger one behind it, which would lose it.
    wanted = max(wanted, 2 * high - side + 2)
    return min(math.ceil(wanted / multiple) * multiple, side)
