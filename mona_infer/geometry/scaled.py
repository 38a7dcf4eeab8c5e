"""`Scaled`: slices resampled to the Task's scale, their shape kept, and seen through windows.

Both axes are treated alike and apart from each other: an `Axis` knows the scan's pixels, the frame's pixels and the
windows along it.  Pixels are areas (mona_kernels/taps.py), on the way to the network and back.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.geometry.probabilities import Logits, in_steps
from mona_infer.geometry.windows import Box, blending, starts
from mona_infer.task import LARGEST, Task
from mona_kernels import native
from mona_kernels.native import Labels
from mona_kernels.taps import taps


class Axis:
    """`size` pixels of the scan become `frame` pixels, of which windows of `window` pixels see a part."""

    def __init__(self, size: int, frame: int, window: int, starts: list[int]) -> None:
        self.starts, self.window = starts, window
        self.canvas = slice(starts[0], starts[-1] + window)  # frame pixels in any window, and zeros around them
        self.seen = slice(max(self.canvas.start, 0), min(self.canvas.stop, frame))  # without the zeros
        self.whole = taps(size, frame)
        wanted = taps(size, frame, self.seen.start, self.seen.stop)
        self.part = slice(wanted.begin, wanted.end)  # pixels of the scan that make up `seen`
        self.reading = wanted.within(wanted.begin, wanted.end)
        # Pixels of the scan whose centre lies in `seen`; beyond the centres of its edge pixels, these are repeated.
        self.covered = slice(*(_first_centre(edge, size, frame) for edge in (self.seen.start, self.seen.stop)))
        back = taps(frame, size, self.covered.start, self.covered.stop)
        self.restoring = back.within(self.seen.start, self.seen.stop)
        self.weights = blending(starts, window)

    def on_canvas(self, window: int) -> slice:
        """The place of a window on the canvas."""
        start = self.starts[window] - self.canvas.start
        return slice(start, start + self.window)

    def visible(self, window: int) -> tuple[slice, slice]:
        """The part of a window that is not zeros: its place in the window, and among the pixels `seen`."""
        start = self.starts[window]
        low, high = max(start, self.seen.start), min(start + self.window, self.seen.stop)
        return slice(low - start, high - start), slice(low - self.seen.start, high - self.seen.start)


def _first_centre(edge: int, size: int, frame: int) -> int:
    """The first of `size` pixels whose centre, (k + 1/2) * frame / size, is not before `edge`."""
    return -((frame - 2 * size * edge) // (2 * frame))


class Scaled:
    """See `Preparation` in stack.py.  The windows are those that see `box`.

    The Task's `image_order` and `mask_order` are about squeezed slices: here logits are always resampled before argmax.
    """

    def __init__(self, task: Task, native_size: tuple[int, int], frame: tuple[int, int], box: Box) -> None:
        if max(frame) > LARGEST:
            what = f"slices of {frame[0]}x{frame[1]} pixels at the model's scale"
            raise InputError(
                f"the scan would have {what}; more than {LARGEST} are not supported, is its spacing right?"
            )
        self.task, self.native_size, self.frame = task, native_size, frame
        spans = (box.top, box.bottom), (box.left, box.right)
        self._rows, self._columns = (
            Axis(size, side, window, starts(*span, window, side))
            for size, side, window, span in zip(native_size, frame, task.input_size, spans, strict=True)
        )
        self.windows = tuple(product(self._rows.starts, self._columns.starts))
        self.part = self._rows.part, self._columns.part
        self.covered = self._rows.covered, self._columns.covered

    def whole(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return native.resample(values, self._rows.whole, self._columns.whole)

    def inputs(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        rows, columns = self._rows, self._columns
        seen = native.resample(values, rows.reading, columns.reading)
        if len(self.windows) == 1 and seen.shape[1:] == self.task.input_size:
            return seen
        inputs = np.zeros((len(seen), len(self.windows), *self.task.input_size), np.float32)
        for n, (i, j) in enumerate(self._places()):
            (down, from_row), (across, from_column) = rows.visible(i), columns.visible(j)
            inputs[:, n, down, across] = seen[:, from_row, from_column]
        return inputs.reshape(-1, *self.task.input_size)

    def merged(self, logits: Logits) -> Logits:
        """The windows' logits blended into one canvas, without what lies outside the frame."""
        if logits.shape[2:] != self.task.input_size or len(logits) % len(self.windows):
            raise ValueError(
                f"expected logits of {len(self.windows)} window(s) {self.task.input_size}, found {logits.shape}"
            )
        rows, columns = self._rows, self._columns
        canvas = logits
        if len(self.windows) > 1:
            given = logits.reshape(-1, len(self.windows), *logits.shape[1:])
            sides = (part.stop - part.start for part in (rows.canvas, columns.canvas))
            canvas = np.zeros((len(given), logits.shape[1], *sides), np.float32)
            for n, (i, j) in enumerate(self._places()):
                weight = rows.weights[i][:, None] * columns.weights[j]
                canvas[:, :, rows.on_canvas(i), columns.on_canvas(j)] += given[:, n] * weight
        down, across = (
            slice(axis.seen.start - axis.canvas.start, axis.seen.stop - axis.canvas.start) for axis in (rows, columns)
        )
        return np.ascontiguousarray(canvas[:, :, down, across])  # not a copy if the windows are inside the frame

    def labels(self, logits: Logits) -> Labels:
        return native.argmax_resampled(logits, self._rows.restoring, self._columns.restoring)

    def probabilities(self, logits: Logits, labels: Labels) -> NDArray[np.uint8]:
        n, classes = logits.shape[:2]
        planes = logits.reshape(n * classes, *logits.shape[2:])
        resized = native.resample(planes, self._rows.restoring, self._columns.restoring)
        return in_steps(resized.reshape(n, classes, *resized.shape[1:]), labels)

    def working_bytes(self, probabilities: bool) -> int:
        classes = len(self.task.classes)
        part, covered = (
            math.prod(max(0, axis.stop - axis.start) for axis in axes) for axes in (self.part, self.covered)
        )
        canvas = math.prod(axis.canvas.stop - axis.canvas.start for axis in (self._rows, self._columns))
        blended = 2 * classes if len(self.windows) > 1 else 1
        return 4 * (3 * part + blended * canvas + covered * (1 + probabilities * 3 * classes))

    def _places(self) -> list[tuple[int, int]]:
        """Row and column of each window in the grid of windows."""
        return list(product(range(len(self._rows.starts)), range(len(self._columns.starts))))
