"""`SliceStack`: turns a scan into the network's input, and logits back into a mask on the scan's grid."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.intensity import contrast_of, intensity_range, normalise
from mona_infer.geometry.probabilities import STEPS, Logits
from mona_infer.geometry.scaled import Scaled
from mona_infer.geometry.slicing import oriented, spread
from mona_infer.geometry.squeezed import Squeezed
from mona_infer.geometry.windows import Box
from mona_infer.task import Task
from mona_infer.volume import Volume
from mona_kernels.native import Labels, resample
from mona_kernels.taps import taps


class Preparation(Protocol):
    """How slices come to the network's scale and back: `Squeezed` or `Scaled`, as the Task says."""

    frame: tuple[int, int]  # rows and columns of a slice at that scale
    windows: tuple[tuple[int, int], ...]  # (top, left) in it of what the network sees; every slice has the same
    part: tuple[slice, slice]  # rows and columns of the scan that the windows need
    covered: tuple[slice, slice]  # rows and columns of the scan that `labels` are of; the others are background

    def whole(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Slices of the scan at the network's scale, all of them."""
        ...

    def inputs(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """From the `part` of n slices, their windows (n * windows, rows, columns): slice by slice."""
        ...

    def merged(self, logits: Logits) -> Logits:
        """From the logits of all windows, those of each slice."""
        ...

    def labels(self, logits: Logits) -> Labels:
        """Class indices in `covered`, from merged logits."""
        ...

    def probabilities(self, logits: Logits, labels: Labels) -> NDArray[np.uint8]:
        """Steps (n, classes, *covered) of 1/255; the largest is that of the label."""
        ...

    def working_bytes(self, probabilities: bool) -> int:
        """About how much memory reading and restoring a slice takes for a moment."""
        ...


class SliceStack:
    """Slices are read and restored a few at a time, so only the scan and its mask are held in memory.

    If the Task has a first look, the window is at the centre of the slices until `aimed_at` says where it should be.
    """

    def __init__(self, volume: Volume, task: Task) -> None:
        self.volume, self.task = volume, task
        self.slicing = oriented(volume.affine, volume.shape, task.orientation, task.slices, task.fallback)
        self._voxels = self.slicing.view(volume.voxels)  # slices rows columns
        self.low, self.high = intensity_range(volume, task.intensity)
        self._ids = np.array([c.id for c in task.classes])
        self._ids_are_indices = bool((self._ids == np.arange(len(self._ids))).all())
        self._preparation = self._prepared(None)

    def __len__(self) -> int:
        return len(self._voxels)

    @property
    def native_size(self) -> tuple[int, int]:
        """Rows and columns of a slice in the scan."""
        _, rows, columns = self._voxels.shape
        return rows, columns

    @property
    def frame(self) -> tuple[int, int]:
        """Rows and columns of a slice at the network's scale."""
        return self._preparation.frame

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """(top, left) of the parts of the frame that the network sees, the same in every slice."""
        return self._preparation.windows

    def aimed_at(self, box: Box | None) -> SliceStack:
        """The same scan seen through windows that see `box` (frame pixels); None: through one at the centre."""
        aimed = copy.copy(self)
        aimed.__dict__.pop("contrast", None)
        aimed._preparation = self._prepared(Box.centre(self.frame) if box is None else box)
        return aimed

    def _prepared(self, box: Box | None) -> Preparation:
        if self.task.squeezed:
            if box is not None:
                raise ValueError("the windows of squeezed slices cannot be moved")
            return Squeezed(self.task, self.native_size)
        _, *in_plane = self.slicing.reorder(self.volume.spacing)
        frame = self.task.frame(self.native_size, (in_plane[0], in_plane[1]))
        if box is None:
            box = Box.centre(frame) if self.task.first_look else Box.whole(frame)
        return Scaled(self.task, self.native_size, frame, box)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Slices start..stop as network input (slices * windows, rows, columns) in 0..1, slice by slice."""
        pictures = self._windows(start, stop)
        return pictures if self.contrast is None else normalise(pictures, *self.contrast)

    def _windows(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._preparation.inputs(self._values(start, stop, self._preparation.part))

    @cached_property
    def contrast(self) -> tuple[float, float] | None:
        """What becomes 0 and 1 of the values that the windows show, if the Task asks for it."""
        if self.task.contrast is None:
            return None
        shown = [self._windows(k, k + 1) for k in spread(range(len(self)))]
        return contrast_of(np.concatenate(shown), self.task.contrast)

    def read_whole(self, start: int, stop: int) -> NDArray[np.float32]:
        """Slices start..stop in 0..1 at the network's scale (n, *frame), not cut to windows."""
        return self._preparation.whole(self._values(start, stop, (slice(None), slice(None))))

    def read_at(self, size: tuple[int, int], start: int, stop: int) -> NDArray[np.float32]:
        """Slices start..stop in 0..1, whole, resampled to any size (n, *size)."""
        rows, columns = (taps(n, new) for n, new in zip(self.native_size, size, strict=True))
        return resample(self._values(start, stop, (slice(None), slice(None))), rows, columns)

    def _values(self, start: int, stop: int, part: tuple[slice, slice]) -> NDArray[np.float32]:
        return normalise(self.volume.intensities(self._voxels[start:stop, *part]), self.low, self.high)

    def batches(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All slices, `size` at a time; each batch comes with the index of its first slice."""
        for start in range(0, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def empty_mask(self) -> Labels:
        """A mask of background in file order, with the same memory layout as the scan."""
        return np.zeros(self.volume.shape, np.uint8 if self._ids.max() < 256 else np.uint16, order="F")

    def restore(self, mask: Labels, start: int, logits: Logits, maps: Sequence[NDArray[np.uint8]] = ()) -> Logits:
        """Write the classes of logits (n * windows, classes, rows, columns) into `mask`, from slice `start` on.

        `maps`, one per class, receive the probabilities behind the mask, in steps of 1/255.  Both are zeros before, and
        are not touched where no window is, but for the background's map: that it is there is certain.  Returns the
        logits that the mask was made from, one picture per slice, at the network's scale.
        """
        if logits.shape[1] != len(self._ids):
            raise ValueError(f"expected logits of {len(self._ids)} classes, found {logits.shape[1]}")
        merged = self.merged(logits)
        slices = slice(start, start + len(merged))
        labels = self._preparation.labels(merged)
        if maps:
            self.slicing.view(maps[0])[slices] = STEPS  # where no window is, it is certain
            steps = self._preparation.probabilities(merged, labels)
            for n, of_class in enumerate(np.moveaxis(steps, 1, 0)):
                self.slicing.view(maps[n])[slices, *self._preparation.covered] = of_class
        if not self._ids_are_indices:  # looking up every voxel takes longer than everything else here
            labels = self._ids.astype(mask.dtype)[labels]
        self.slicing.view(mask)[slices, *self._preparation.covered] = labels
        return merged

    def merged(self, logits: Logits) -> Logits:
        """From the logits of the windows of some slices, one picture per slice, at the network's scale."""
        return self._preparation.merged(logits)

    def working_bytes(self, probabilities: bool) -> int:
        """About how much memory reading and restoring a slice takes for a moment."""
        return self._preparation.working_bytes(probabilities)
