"""`ScanFile`: a file whose header has been read, and the volumes in it; every format's reader returns one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.io.stored_voxels import Stored, frame_index, read_frames
from mona_infer.volume import Volume


@dataclass(frozen=True, eq=False)
class ScanFile:
    path: Path  # as given by the user; the voxels may be in another file
    stored: Stored
    affine: NDArray[np.float64]  # voxel to world millimetres, RAS+
    slope: float = 1.0
    intercept: float = 0.0
    header: Any = None  # NIfTI only
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Followed by the number of frames, if there are several."""
        return self.stored.shape if self.stored.frames == 1 else (*self.stored.shape, self.stored.frames)

    def volume(self, frame: int | None, *, budget: int, beside: int = 0) -> Volume:
        """Frame `frame`, or the only one."""
        return next(self._volumes(lambda frames: [frame_index(self.path, frames, frame)], budget, beside))

    def volumes(self, *, budget: int, beside: int = 0) -> Iterator[Volume]:
        """Every frame, with one in memory at a time."""
        return self._volumes(range, budget, beside)

    def _volumes(self, choose: Callable[[int], Sequence[int]], budget: int, beside: int) -> Iterator[Volume]:
        for voxels in read_frames(self.stored, choose(self.stored.frames), budget=budget, beside=beside):
            with np.errstate(over="ignore"):  # numbers in an affine that have no square are refused as implausible
                volume = Volume(
                    voxels=voxels,
                    affine=self.affine,
                    slope=self.slope,
                    intercept=self.intercept,
                    source=str(self.path),
                    header=self.header,
                    notes=self.notes,
                    frames=self.stored.frames,
                )
            yield volume
            del volume, voxels  # or it would stay in memory while the next is read
