"""Scans and masks as the gzipped NIfTI that a page holds, small enough for a browser."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO, Any, cast

import numpy as np
from isal import igzip
from numpy.typing import NDArray

from mona_infer.geometry.intensity import intensity_range
from mona_infer.io.nifti import nifti_stream
from mona_infer.task import Intensity
from mona_infer.viewing.grid import ShownGrid
from mona_infer.volume import Volume
from mona_kernels.native import Labels

# Voxels of all frames.  Beyond them a page of 16 bits takes a browser without a graphics card a minute to open.
EIGHT_BITS, HALVED = 24_000_000, 48_000_000
AS_STORED = ("uint8", "int16", "uint16")  # that browsers' graphics take as they are
SPAN = (0.1, 99.9)  # percentiles of the intensities that 8 bits are spread over


class Packed:
    """Frame after frame through gzip, so a cine takes no more memory than a page that holds it."""

    def __init__(self, intent: str, frames: int) -> None:
        self._intent, self._frames = intent, frames
        self._bytes = io.BytesIO()
        self._stream = igzip.IGzipFile("", "wb", 2, self._bytes, 0)
        self._write: Callable[[Volume], None] | None = None

    def add(self, volume: Volume) -> None:
        if self._write is None:
            self._write = nifti_stream(cast(IO[bytes], self._stream), volume, self._frames, self._intent)
        self._write(volume)

    def finish(self) -> bytes:
        self._stream.close()
        return self._bytes.getvalue()


class PackedScan(Packed):
    """The scan as it is shown: its own 8 or 16 bits, or, if it is large or stored as something else, fewer."""

    def __init__(self, frames: int, span: tuple[float, float] | None = None) -> None:
        super().__init__("none", frames)
        self._span = span
        self._scale: tuple[float, float] | None = None  # slope and intercept, if intensities are rounded to fit
        self.bits = 0

    def add_scan(self, volume: Volume, grid: ShownGrid) -> None:
        if not self.bits:
            self._choose(volume)
        shown = grid.values(volume)
        if self._scale is not None:
            shown = self._rounded(shown, *self._scale)
        self.add(shown)

    def _choose(self, volume: Volume) -> None:
        """From the first frame, for all: by how much intensities are rounded."""
        small = self._frames * math.prod(volume.shape) <= EIGHT_BITS
        stored = volume.voxels.dtype.newbyteorder("=").name
        if stored in AS_STORED and (small or stored == "uint8"):
            self.bits = 8 * volume.voxels.dtype.itemsize
            return
        self.bits = 16 if small else 8
        extremes = finite_range(volume, (0, 100))
        low, high = extremes if small else self._span or finite_range(volume, SPAN)
        self._scale = max(high - low, 1e-6) / (2**self.bits - 1), low

    def _rounded(self, shown: Volume, slope: float, intercept: float) -> Volume:
        top = 2**self.bits - 1
        voxels = np.empty(shown.shape, np.uint8 if self.bits == 8 else np.uint16, order="F")
        for k in range(shown.shape[2]):
            steps = (np.nan_to_num(shown.intensities(shown.voxels[:, :, k])) - intercept) / slope
            voxels[:, :, k] = np.clip(np.rint(steps), 0, top)
        return replace(shown, voxels=voxels, slope=slope, intercept=intercept)


def packed_labels(packed: Packed, labels: Labels, ids: Sequence[int], volume: Volume, grid: ShownGrid) -> None:
    """Add a mask as class numbers: 0 for the background, n for the n-th of `ids`; others are left out."""
    numbers = np.zeros(int(max(labels.max(initial=0), *ids)) + 1, np.uint8)
    numbers[list(ids)] = np.arange(1, len(ids) + 1)
    shown: NDArray[Any] = numbers[grid.labels(labels)]
    packed.add(replace(volume, voxels=shown, affine=grid.affine, header=None, slope=1.0, intercept=0.0))


def finite_range(volume: Volume, percentiles: tuple[float, float]) -> tuple[float, float]:
    """The intensities at these percentiles; values that are no number count as 0."""
    if volume.voxels.dtype.kind == "f" and not np.isfinite(volume.voxels).all():
        volume = replace(volume, voxels=np.nan_to_num(volume.voxels, posinf=0, neginf=0))
    return intensity_range(volume, Intensity("percentile", *percentiles))
