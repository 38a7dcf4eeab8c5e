"""The order in which voxels are shown: to the patient's right, front and head, whatever order they are stored in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.slicing import slicing
from mona_infer.volume import Volume
from mona_kernels.native import Labels


@dataclass(frozen=True, eq=False)
class ShownGrid:
    """x runs to the right, y to the front and z to the head, or as nearly as the stored axes do.

    Only the order of voxels changes, so a mask stays exactly where it is.  With `halved`, every two rows and columns of
    a slice become one.
    """

    axes: tuple[int, int, int]  # of the stored voxels, for x, y and z
    flips: tuple[bool, bool, bool]
    shape: tuple[int, int, int]  # before halving
    affine: NDArray[np.float64]  # of what is shown
    slice_axis: int  # of x, y, z
    slices_reversed: bool  # whether stored slices run the other way
    halved: bool

    @classmethod
    def of(cls, volume: Volume, slice_axis: int | None = None, halved: bool = False) -> ShownGrid:
        """`slice_axis` is a stored axis; by default that with thick slices, else the one nearest to head-foot."""
        towards = slicing(volume.affine, "inferior-superior")  # slices to the head, rows to the back, columns to left
        z, y, x = towards.axes
        up, back, left = towards.flips
        axes, flips = (x, y, z), (not left, not back, up)
        stored = slicing(volume.affine, "stack").axes[0] if slice_axis is None else slice_axis
        affine = volume.affine.copy()
        affine[:3, :3] = volume.affine[:3, list(axes)] * np.where(flips, -1, 1)
        for axis, flip in zip(axes, flips, strict=True):
            if flip:
                affine[:3, 3] += volume.affine[:3, axis] * (volume.shape[axis] - 1)
        shape = volume.shape[x], volume.shape[y], volume.shape[z]
        along = axes.index(stored)
        if halved:
            for n in range(3):
                if n != along:
                    affine[:3, 3] += affine[:3, n] / 2
                    affine[:3, n] *= 2
        return cls(axes, flips, shape, affine, along, flips[along], halved)

    def view(self, voxels: NDArray[Any]) -> NDArray[Any]:
        """Stored voxels as x, y, z: not a copy."""
        steps = tuple(slice(None, None, -1 if flip else None) for flip in self.flips)
        return voxels.transpose(self.axes)[steps]

    def slices(self, voxels: NDArray[Any]) -> NDArray[Any]:
        """Stored voxels with the slice axis first, in the order in which slices are shown."""
        return np.moveaxis(self.view(voxels), self.slice_axis, 0)

    def values(self, volume: Volume) -> Volume:
        """What is shown of a scan; halved, the mean of four pixels."""
        voxels = self.view(volume.voxels)
        return replace(
            volume, voxels=self._by_four(voxels, _mean) if self.halved else voxels, affine=self.affine, header=None
        )

    def labels(self, labels: Labels) -> Labels:
        """What is shown of a mask; halved, the label that most of four pixels have, else that of the first."""
        voxels = self.view(labels)
        return np.asarray(self._by_four(voxels, _commonest) if self.halved else voxels)

    def _by_four(self, voxels: NDArray[Any], join: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        """Every two rows and columns of a slice joined, slice by slice; an odd last one counts twice."""
        planes = np.moveaxis(voxels, self.slice_axis, 0)
        rows, columns = planes.shape[1:]
        found = np.empty((len(planes), (rows + 1) // 2, (columns + 1) // 2), voxels.dtype)
        for k, plane in enumerate(planes):
            even = np.pad(plane, ((0, rows % 2), (0, columns % 2)), mode="edge")
            found[k] = join(even[::2, ::2], even[::2, 1::2], even[1::2, ::2], even[1::2, 1::2])
        return np.moveaxis(found, 0, self.slice_axis)


def _mean(*corners: NDArray[Any]) -> NDArray[Any]:
    mean = sum((c.astype(np.float32) for c in corners[1:]), start=corners[0].astype(np.float32)) / 4
    return np.rint(mean) if corners[0].dtype.kind in "iu" else mean


def _commonest(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> NDArray[Any]:
    return np.where((b == c) | (b == d), b, np.where(c == d, c, a))
