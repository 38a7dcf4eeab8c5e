"""`Volume`: voxels in file order together with the geometry and history that give them meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_kernels.native import at_right_angles


@dataclass(frozen=True, eq=False)
class Volume:
    """A 3-D scan or mask on its own grid.

    `voxels` keep the dtype they were stored with; an intensity is `slope * voxel + intercept`.
    `affine` maps voxel indices (i, j, k) to world millimetres in the RAS+ convention of NIfTI.
    """

    voxels: NDArray[Any]  # i j k
    affine: NDArray[np.float64]  # 4 4
    slope: float = 1.0
    intercept: float = 0.0
    source: str = "array"
    modality: str | None = None  # "CT", "MR", ... where the file says so
    header: Any = None  # the NIfTI header, so that a mask can repeat its codes and quaternions to the bit
    notes: tuple[str, ...] = ()  # what the reader noticed and the user should hear
    frames: int = 1  # in the file that this one was read from
    times: tuple[float, ...] = ()  # of a DICOM cine: seconds from its first frame to each, where the files say so
    origin: tuple[Any, ...] = ()  # of a DICOM series, where asked for: header and frame number of each slice k
    names: Mapping[int, str] = field(default_factory=dict)  # of label ids, where the file has them
    sparse: bool = False  # a DICOM-SEG leaves out slices without labels: all around this volume is background

    def __post_init__(self) -> None:
        if self.voxels.ndim != 3 or 0 in self.voxels.shape:
            raise InputError(f"{self.source}: expected a 3-D volume, found shape {self.voxels.shape}")
        if self.affine.shape != (4, 4) or not np.isfinite(self.affine).all():
            raise InputError(f"{self.source}: the affine is not a finite 4x4 matrix")
        spacing = self.spacing
        if min(spacing) < 1e-4 or max(spacing) > 1e4:
            raise InputError(f"{self.source}: voxel spacing {spacing} mm is not plausible")
        if np.abs(self.affine[:3, 3]).max() > 1e6:
            raise InputError(f"{self.source}: the affine puts it more than a kilometre away, which is not plausible")
        # An affine whose axes (nearly) share a plane maps the volume onto a sheet: no geometry can be kept.
        if abs(np.linalg.det(self.affine[:3, :3] / spacing)) < 0.05:
            raise InputError(f"{self.source}: the affine is singular, the voxel axes do not span space")

    @property
    def shape(self) -> tuple[int, int, int]:
        i, j, k = self.voxels.shape
        return i, j, k

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres between neighbours along i, j and k."""
        a, b, c = np.sqrt((self.affine[:3, :3] ** 2).sum(axis=0))
        return float(a), float(b), float(c)

    @property
    def steps(self) -> NDArray[np.float64]:
        """From a voxel to its neighbour along i, j and k, as rows in world millimetres; of a tilted gantry not
        orthogonal, so that the spacing alone does not tell how far apart two voxels are."""
        return np.ascontiguousarray(self.affine[:3, :3].T)

    @property
    def diagonal(self) -> float:
        """Millimetres between the outermost corners: the distance a missed structure is charged."""
        if not at_right_angles(self.steps):
            corners = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]]) * self.shape
            return float(np.sqrt(((corners @ self.steps) ** 2).sum(axis=1)).max())
        extent = np.array(self.shape) * self.spacing
        return float(np.sqrt((extent**2).sum()))

    def intensities(self, plane: NDArray[Any]) -> NDArray[np.float32]:
        """A part of `voxels` as float32 intensities (always a fresh array)."""
        values = plane.astype(np.float32)
        if self.slope != 1.0:
            values *= np.float32(self.slope)
        if self.intercept != 0.0:
            values += np.float32(self.intercept)
        return values

    def with_voxels(self, voxels: NDArray[Any]) -> Volume:
        """Other voxels on this grid: a mask for a scan, say."""
        if voxels.shape != self.voxels.shape:
            raise ValueError(f"expected voxels of shape {self.voxels.shape}, found {voxels.shape}")
        return replace(self, voxels=voxels, slope=1.0, intercept=0.0)
