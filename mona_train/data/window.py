"""The window: what the network sees of a slice.  It decides the resolution that a run can afford.

Slices that keep their shape: a square around the organ, found by a first look, or the whole slice if organs fill it.
Squeezed slices: the centre, if all organs are in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mona_train.data.cache import Cache

MARGIN = (
    1.5  # times the largest organ of the few labelled patients: others have larger ones, and a network needs context
)
WORTHWHILE = 0.6  # of a slice's area: a window that covers more than this saves less than a first look costs


def organ_window(
    cache: Cache, rows: Iterable[int], *, margin: float = MARGIN, multiple: int = 16
) -> tuple[tuple[int, int], bool, str]:
    """The window for slices that keep their shape, whether a first look has to place it, and the reason in words."""
    wanted = set(rows)
    sides, areas = [], []
    for case in cache.cases:
        labelled = [label for row, label in case.label_rows.items() if row in wanted]
        foreground: NDArray[np.bool_] = np.asarray((cache.labels[labelled] > 0).any(axis=0))
        if foreground.any():
            spans = (_span(foreground, axis) for axis in (0, 1))
            sides.append(max(high - low + 1 for low, high, _ in spans))
            areas.append(math.prod(case.frame or cache.images.shape[1:]))
    whole = _multiple(cache.images.shape[1], multiple), _multiple(cache.images.shape[2], multiple)
    if not sides:
        return whole, False, f"the network sees whole slices, in {whole[0]}x{whole[1]}"
    side = _multiple(margin * max(sides), multiple)
    organ = f"organs of labelled patients are up to {max(sides)} pixels wide"
    if side**2 >= WORTHWHILE * float(np.median(areas)):
        return whole, False, f"{organ}: the network sees whole slices, in {whole[0]}x{whole[1]}"
    return (side, side), True, f"{organ}: the network sees {side}x{side} around them, found by a first look"


def _multiple(side: float, multiple: int) -> int:
    return math.ceil(round(side, 6) / multiple) * multiple


def centred_window(cache: Cache, rows: Iterable[int], *, margin: float = 0.1, multiple: int = 16) -> tuple[int, int]:
    """For squeezed slices: the smallest centred window, the same fraction of both sides, with all foreground of `rows`.

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
