"""`Squeezed`: slices resized to the Task's size whatever their shape, corners aligned (method 1.1 and 1.5.1)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.probabilities import STEPS, Logits, in_steps
from mona_infer.task import Task, centred
from mona_kernels import native
from mona_kernels.native import Labels


class Squeezed:
    """See `Preparation` in stack.py.  The network sees the centre of the resized slice, or all of it."""

    def __init__(self, task: Task, native_size: tuple[int, int]) -> None:
        self.task, self.native_size, self.frame = task, native_size, task.size
        self._window = centred(task.size, task.input_size)
        self.windows: tuple[tuple[int, int], ...] = ((self._window[0].start, self._window[1].start),)
        self.part = self.covered = (slice(0, native_size[0]), slice(0, native_size[1]))

    def whole(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        resized: NDArray[np.float32] = native.resize(values, self.task.size, order=self.task.image_order)
        return resized

    def inputs(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.whole(values)[:, *self._window])  # not a copy if there is no window

    def merged(self, logits: Logits) -> Logits:
        if self.task.window is not None and logits.shape[2:] != self.task.input_size:
            raise ValueError(f"expected logits of the window {self.task.input_size}, found {logits.shape[2:]}")
        return logits

    def labels(self, logits: Logits) -> Labels:
        """A pixel whose nearest pixel at the Task's size is outside the window becomes background."""
        labels = native.argmax_resized(self._at_full_size(logits), self.native_size, order=self.task.mask_order)
        if self.task.window is not None:
            labels *= self._inside
        return labels

    def probabilities(self, logits: Logits, labels: Labels) -> NDArray[np.uint8]:
        """Resized by the same rule as the mask `labels`.

        If linear, the logits are resized, not the probabilities: the largest of those is often another class.
        """
        logits = self._at_full_size(logits)
        n, classes = logits.shape[:2]

        def resized(planes: NDArray[Any]) -> NDArray[Any]:
            flat = planes.reshape(n * classes, *planes.shape[2:])
            order = self.task.mask_order
            return native.resize(flat, self.native_size, order=order).reshape(n, classes, *self.native_size)

        if self.task.mask_order == 0:
            winner = native.argmax_resized(logits, self.task.size, order=0)  # the size it has: a plain argmax
            steps = resized(in_steps(logits, winner))
        else:
            steps = in_steps(resized(logits), labels)
        if self.task.window is not None:
            steps *= self._inside
            steps[:, 0] += STEPS * (1 - self._inside)
        return steps

    def working_bytes(self, probabilities: bool) -> int:
        classes, inside = len(self.task.classes), math.prod(self.task.input_size)
        return (
            4 * math.prod(self.native_size) * (3 + probabilities * 3 * classes) + probabilities * 8 * classes * inside
        )

    def _at_full_size(self, logits: Logits) -> Logits:
        """The window's logits padded to the Task's size by repeating their edge.

        Not padded with a large background logit: linear resizing would blend it into the outer half of the window's
        edge pixels and, by a rounding error, even their centres.  Repeating keeps the logits inside unchanged; what is
        outside is set to background afterwards.
        """
        if self.task.window is None:
            return logits
        around = [(part.start, side - part.stop) for part, side in zip(self._window, self.task.size, strict=True)]
        return np.pad(logits, [(0, 0), (0, 0), *around], mode="edge")

    @cached_property
    def _inside(self) -> NDArray[np.uint8]:
        """1 where a scan pixel's nearest pixel at the Task's size is inside the window, else 0."""
        flags = np.zeros((1, *self.task.size), np.uint8)
        flags[:, *self._window] = 1
        inside: NDArray[np.uint8] = native.resize(flags, self.native_size, order=0)[0]
        return inside
