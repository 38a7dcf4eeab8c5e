"""`Volume`: voxels in file order, with their geometry and where they came from."""

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

    `voxels` keep the dtype of the file; an intensity is `slope * voxel + intercept`.  `affine` maps voxel indices
    (i, j, k) to world coordinates in millimetres, in NIfTI's RAS+ convention.
    """

    voxels: NDArray[Any]  # i j k
    affine: NDArray[np.float64]  # 4 4
    slope: float = 1.0
    intercept: float = 0.0
    source: str = "array"
    modality: str | None = None  # "CT", "MR", ... if the file says so
    header: Any = None  # the NIfTI header, so that a mask can copy its codes and quaternions exactly
    notes: tuple[str, ...] = ()  # what the reader assumed or corrected, for the user to see
    frames: int = 1  # how many frames the file has
    times: tuple[float, ...] = ()  # DICOM cine only: seconds from the first frame to each, if the files say so
    origin: tuple[Any, ...] = ()  # DICOM only, on request: header and frame number of each slice k
    names: Mapping[int, str] = field(default_factory=dict)  # label id -> name, if the file has names
    sparse: bool = False  # a DICOM-SEG leaves out empty slices: everything outside this volume is background

    def __post_init__(self) -> None:
        if self.voxels.ndim != 3 or 0 in self.voxels.shape:
            raise InputError(f"{self.source}: expected a 3-D volume, found shape {self.voxels.shape}")
        if self.affine.shape != (4, 4) or not np.isfinite(self.affine).all():
            raise InputError(f"{self.source}: the affine is not a finite 4x4 matrix")
        spacing = self.spacing
        if min(spacing) < 1e-4 or max(spacing) > 1e4:
            raise InputError(f"{self.source}: voxel spacing {spacing} mm is not plausible")
        if np.abs(self.affine[:3, 3]).max() > 1e6:
            raise InputError(f"{self.source}: the affine places it more than a kilometre away, which is not plausible")
        # If the axes (nearly) lie in one plane, the affine flattens the volume: its geometry is lost.
        if abs(np.linalg.det(self.affine[:3, :3] / spacing)) < 0.05:
            raise InputError(f"{self.source}: the affine is singular: the voxel axes do not span three dimensions")

    @property
    def shape(self) -> tuple[int, int, int]:
        i, j, k = self.voxels.shape
        return i, j, k

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres between neighbouring voxels along i, j and k."""
        with np.errstate(over="ignore"):  # beyond 1e154 it is infinite, and refused when the volume is made
            a, b, c = np.sqrt((self.affine[:3, :3] ** 2).sum(axis=0))
        return float(a), float(b), float(c)

    @property
    def steps(self) -> NDArray[np.float64]:
        """The step to the next voxel along i, j and k, one row each, in world millimetres.

        With a tilted gantry the steps are not orthogonal, so the spacing alone does not give distances.
        """
        return np.ascontiguousarray(self.affine[:3, :3].T)

    @property
    def diagonal(self) -> float:
        """Millimetres between opposite corners: the distance that a missed structure is scored with."""
        if not at_right_angles(self.steps):
            corners = np.array([[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]]) * self.shape
            return float(np.sqrt(((corners @ self.steps) ** 2).sum(axis=1)).max())
        extent = np.array(self.shape) * self.spacing
        return float(np.sqrt((extent**2).sum()))

    def intensities(self, plane: NDArray[Any]) -> NDArray[np.float32]:
        """Part of `voxels` as float32 intensities (always a new array)."""
        values = plane.astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused by those who need numbers
            if self.slope != 1.0:
                values *= np.float32(self.slope)
            if self.intercept != 0.0:
                values += np.float32(self.intercept)
        return values

    def with_voxels(self, voxels: NDArray[Any]) -> Volume:
        """The same grid with other voxels, for example the mask of a scan."""
        if voxels.shape != self.voxels.shape:
            raise ValueError(f"expected voxels of shape {self.voxels.shape}, found {voxels.shape}")
        return replace(self, voxels=voxels, slope=1.0, intercept=0.0)
