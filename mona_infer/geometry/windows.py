"""Where the network's windows lie on a slice, and how the answers of overlapping ones are blended.

Places are in frame pixels: pixels of a slice at the network's scale (`Task.frame`).  A window may reach beyond the
frame; the network sees zeros there.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OVERLAP = 4  # neighbouring windows share at least one part in so many of their side


class Box(NamedTuple):
    """Rows top..bottom and columns left..right of a frame, the ends not included."""

    top: int
    left: int
    bottom: int
    right: int

    @classmethod
    def whole(cls, frame: tuple[int, int]) -> Box:
        return cls(0, 0, *frame)

    @classmethod
    def centre(cls, frame: tuple[int, int]) -> Box:
        """The smallest box around the centre of a frame: one window fits around it."""
        rows, columns = frame
        return cls(rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)


def cover(box: Box, window: tuple[int, int], frame: tuple[int, int]) -> list[tuple[int, int]]:
    """(top, left) of the windows that see a box: a grid, row by row; see `starts`."""
    rows = starts(box.top, box.bottom, window[0], frame[0])
    columns = starts(box.left, box.right, window[1], frame[1])
    return list(product(rows, columns))


def starts(low: int, high: int, window: int, frame: int) -> list[int]:
    """Where windows begin along one axis to see low..high.

    One window if it holds them: around their middle, but inside the frame, because pixels tell more than zeros.  Else
    several from the first pixel to the last, evenly spaced.  A frame no larger than the window is in its centre.
    """
    if frame <= window:
        return [-((window - frame) // 2)]
    low, high = max(0, min(low, frame - 1)), min(frame, max(high, 1))
    if high - low <= window:
        return [min(max((low + high - window) // 2, 0), frame - window)]
    spare, step = high - low - window, window - -(-window // OVERLAP)
    gaps = -(-spare // max(1, step))
    return [low + n * spare // gaps for n in range(gaps + 1)]


def blending(starts: list[int], window: int) -> NDArray[np.float32]:
    """Weights (windows, window) along one axis: highest in a window's middle, and at every pixel they add up to 1."""
    ramp = np.minimum(np.arange(1, window + 1), np.arange(window, 0, -1)).astype(np.float64)
    total = np.zeros(starts[-1] + window - starts[0])
    places = [slice(start - starts[0], start - starts[0] + window) for start in starts]
    for place in places:
        total[place] += ramp
    return np.array([ramp / total[place] for place in places], np.float32)
