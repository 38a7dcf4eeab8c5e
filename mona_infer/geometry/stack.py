"""`SliceStack`: turns a scan into the network's input, and logits back into a mask on the scan's grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.intensity import intensity_range, normalise
from mona_infer.geometry.probabilities import STEPS, in_steps
from mona_infer.geometry.slicing import slicing
from mona_infer.task import Task, centred
from mona_infer.volume import Volume
from mona_kernels import native
from mona_kernels.native import Labels


class SliceStack:
    """Slices are read and restored a few at a time, so only the scan and its mask are held in memory."""

    def __init__(self, volume: Volume, task: Task) -> None:
        self.volume, self.task = volume, task
        self.slicing = slicing(volume.affine, task.slices, task.fallback)
        self._voxels = self.slicing.view(volume.voxels)  # slices rows columns
        self.low, self.high = intensity_range(volume, task.intensity)
        self._ids = np.array([c.id for c in task.classes])
        self._ids_are_indices = bool((self._ids == np.arange(len(self._ids))).all())
        self._window = centred(task.size, task.input_size)

    def __len__(self) -> int:
        return len(self._voxels)

    @property
    def native_size(self) -> tuple[int, int]:
        """Rows and columns of a slice in the scan."""
        _, rows, columns = self._voxels.shape
        return rows, columns

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Slices start..stop as network input (n, rows, columns) in 0..1: resized, then cut to the Task's window."""
        values = normalise(self.volume.intensities(self._voxels[start:stop]), self.low, self.high)
        resized = native.resize(values, self.task.size, order=self.task.image_order)
        return np.ascontiguousarray(resized[:, *self._window])  # not a copy if there is no window

    def batches(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All slices, `size` at a time; each batch comes with the index of its first slice."""
        for start in range(0, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def empty_mask(self) -> Labels:
        """A mask of background in file order, with the same memory layout as the scan."""
        return np.zeros(self.volume.shape, np.uint8 if self._ids.max() < 256 else np.uint16, order="F")

    def restore(
        self, mask: Labels, start: int, logits: NDArray[np.float32], maps: Sequence[NDArray[np.uint8]] = ()
    ) -> None:
        """Write the classes of logits (n, classes, rows, columns) into `mask`, from slice `start` on.

        A pixel whose nearest pixel at the Task's size is outside the window becomes background.  `maps`, one per class,
        receive the probabilities behind the mask, in steps of 1/255.
        """
        if logits.shape[1] != len(self._ids):
            raise ValueError(f"expected logits of {len(self._ids)} classes, found {logits.shape[1]}")
        if self.task.window is not None:
            logits = self._at_full_size(logits)
        labels = native.argmax_resized(logits, self.native_size, order=self.task.mask_order)
        for n, steps in enumerate(np.moveaxis(self._probabilities(logits, labels), 1, 0)) if maps else ():
            self.slicing.view(maps[n])[start : start + len(logits)] = steps
        if self.task.window is not None:
            labels *= self._inside
        if not self._ids_are_indices:  # looking up every voxel takes longer than everything else here
            labels = self._ids.astype(mask.dtype)[labels]
        self.slicing.view(mask)[start : start + len(logits)] = labels

    def _probabilities(self, logits: NDArray[np.float32], labels: Labels) -> NDArray[np.uint8]:
        """Steps (n, classes, rows, columns) at native size, resized by the same rule as the mask `labels`.

        If linear, the logits are resized, not the probabilities: the largest of those is often another class.
        """
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

    def _at_full_size(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The window's logits padded to the Task's size by repeating their edge.

        Not padded with a large background logit: linear resizing would blend it into the outer half of the window's
        edge pixels and, by a rounding error, even their centres.  Repeating keeps the logits inside unchanged; what is
        outside is set to background afterwards.
        """
        if logits.shape[2:] != self.task.input_size:
            raise ValueError(f"expected logits of the window {self.task.input_size}, found {logits.shape[2:]}")
        around = [(part.start, side - part.stop) for part, side in zip(self._window, self.task.size, strict=True)]
        return np.pad(logits, [(0, 0), (0, 0), *around], mode="edge")

    @cached_property
    def _inside(self) -> NDArray[np.uint8]:
        """1 where a scan pixel's nearest pixel at the Task's size is inside the window, else 0."""
        flags = np.zeros((1, *self.task.size), np.uint8)
        flags[:, *self._window] = 1
        inside: NDArray[np.uint8] = native.resize(flags, self.native_size, order=0)[0]
        return inside
