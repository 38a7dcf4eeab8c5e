"""`SliceStack`: a scan as its Task's network sees it, and the way back from logits to a mask on the scan's grid."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mona_infer.intensity import intensity_range, normalise
from mona_infer.slicing import slicing
from mona_infer.task import Task
from mona_infer.volume import Volume
from mona_kernels import native
from mona_kernels.native import Labels


class SliceStack:
    """Slices are read and restored a few at a time, so a scan costs its own voxels and its mask, no more."""

    def __init__(self, volume: Volume, task: Task) -> None:
        self.volume, self.task = volume, task
        self.slicing = slicing(volume.affine, task.slices, task.fallback)
        self._voxels = self.slicing.view(volume.voxels)  # slices rows columns
        self.low, self.high = intensity_range(volume, task.intensity)
        self._ids = np.array([c.id for c in task.classes])

    def __len__(self) -> int:
        return len(self._voxels)

    @property
    def native_size(self) -> tuple[int, int]:
        """Rows and columns of a slice as scanned."""
        _, rows, columns = self._voxels.shape
        return rows, columns

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Slices start..stop as network input (n, rows, columns), 0..1 at the Task's size."""
        values = normalise(self.volume.intensities(self._voxels[start:stop]), self.low, self.high)
        return native.resize(values, self.task.size, order=self.task.image_order)

    def batches(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All slices, `size` at a time, each batch with the index of its first slice."""
        for start in range(0, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def empty_mask(self) -> Labels:
        """A mask of background in file order, stored as the scan is so that both are walked alike."""
        return np.zeros(self.volume.shape, np.uint8 if self._ids.max() < 256 else np.uint16, order="F")

    def restore(self, mask: Labels, start: int, logits: NDArray[np.float32]) -> None:
        """Put the classes of logits (n, classes, rows, columns) for slices from `start` on into `mask`."""
        if logits.shape[1] != len(self._ids):
            raise ValueError(f"expected logits of {len(self._ids)} classes, found {logits.shape[1]}")
        found = native.argmax_resized(logits, self.native_size, order=self.task.mask_order)
        self.slicing.view(mask)[start : start + len(logits)] = self._ids.astype(mask.dtype)[found]
