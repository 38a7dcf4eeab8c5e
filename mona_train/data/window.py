"""The window: the centre of a slice that contains all organs.  The margin would cost as much time per pixel."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mona_train.data.cache import Cache


def centred_window(cache: Cache, rows: Iterable[int], *, margin: float = 0.1, multiple: int = 16) -> tuple[int, int]:
    """The smallest centred window, the same fraction of both sides, that contains all foreground of labelled `rows`.

    The fraction is how far foreground reaches from the centre (0: centre, 1: border) plus `margin`, since the organs of
    unlabelled patients may reach further than those of the few labelled ones.  Each side is rounded up to a `multiple`
    that a network can halve often enough, but not beyond the full side.  Without any foreground: the full size.
    """
    if margin < 0 or multiple < 1:
        raise ValueError(
            f"the margin must be 0 or greater and the multiple 1 or greater, found {margin} and {multiple}"
        )
    found = {row: label for case in cache.cases for row, label in case.label_rows.items()}
    _, height, width = cache.labels.shape
    foreground = np.zeros((height, width), bool)
    for row in rows:
        if row not in found:
            raise ValueError(f"row {row} has no label, so a window cannot be computed from it")
        foreground |= cache.labels[found[row]] > 0
    if not foreground.any():
        return height, width
    spans = [_span(foreground, axis) for axis in (0, 1)]
    # Positions are those of pixel centres, so a pixel on the border reaches a little less than 1.
    share = margin + max(max(side - 1 - 2 * low, 2 * high - side + 1) / side for low, high, side in spans)
    height, width = (_side(share * side, high, side, multiple) for _, high, side in spans)
    return height, width


def _span(foreground: NDArray[np.bool_], axis: int) -> tuple[int, int, int]:
    """First and last position of foreground along an axis, and the length of the axis."""
    places = np.flatnonzero(foreground.any(axis=1 - axis))
    return int(places[0]), int(places[-1]), foreground.shape[axis]


def _side(wanted: float, high: int, side: int, multiple: int) -> int:
    wanted = round(wanted, 6)  # 0.1 + 0.05 of 100 is 15, not 15.000000000000002
    # Without a margin, `wanted` ends at the centre of the outermost pixel.  `centred` cuts off the smaller half of the
    # rest in front of the window, which keeps that pixel, and the larger half behind it, which would cut it off.
    wanted = max(wanted, 2 * high - side + 2)
    return min(math.ceil(wanted / multiple) * multiple, side)
