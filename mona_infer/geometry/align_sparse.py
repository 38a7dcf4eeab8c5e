"""Putting a mask that only has slices with labels (a DICOM-SEG) on a grid that has all slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mona_infer.system.memory_budget import TooLarge, memory_budget
from mona_infer.volume import Volume

TOLERANCE = 0.01  # voxels, at a slice's corners: as in `align`


def placed(volume: Volume, other: Volume) -> Volume | None:
    """`volume` on the grid of `other`, slice by slice, with background elsewhere; None if a label is off the grid.

    Each slice is placed on its own, so it does not matter which slices were left out or what slice spacing the file
    declares.
    """
    to_other = np.linalg.solve(other.affine, volume.affine)  # voxel indices of `volume` to those of `other`
    turn = np.rint(to_other[:3, :2])  # where i and j go
    if (np.abs(turn).sum(axis=0) != 1).any() or (np.abs(turn).sum(axis=1) > 1).any():
        return None
    a, b = (int(axis) for axis in np.abs(turn).argmax(axis=0))
    c, (rows, columns) = 3 - a - b, volume.shape[:2]
    if (other.shape[a], other.shape[b]) != (rows, columns):
        return None
    labelled = np.flatnonzero(volume.voxels.any(axis=(0, 1)))
    slices = labelled if labelled.size else np.zeros(1, np.int64)  # an empty mask only has to fit within its plane
    first = to_other[:3, 3] + slices[:, None] * to_other[:3, 2]  # first voxel of each slice
    start = np.rint(first)
    start[:, a] = 0 if turn[a, 0] > 0 else rows - 1
    start[:, b] = 0 if turn[b, 1] > 0 else columns - 1
    drift = np.abs(to_other[:3, :2] - turn) @ (rows - 1, columns - 1)  # at the far ends of i and j
    places = start[:, c].astype(np.int64)
    outside = labelled.size and (places.min() < 0 or places.max() >= other.shape[c])
    if (np.abs(first - start) + drift).max() > TOLERANCE or outside:
        return None
    voxels = np.zeros(other.shape, volume.voxels.dtype, order="F")
    if labelled.size:
        turned = voxels.transpose(a, b, c)[:: int(turn[a, 0]), :: int(turn[b, 1])]
        turned[:, :, places] = volume.voxels[:, :, labelled]
    return replace(volume, voxels=voxels, affine=other.affine, header=other.header, sparse=False)


def around_both(volume: Volume, other: Volume) -> Volume:
    """The grid of the mask with the closer slices, extended to hold both masks."""
    grid, guest = (other, volume) if other.spacing[2] <= volume.spacing[2] * 1.01 else (volume, other)
    to_grid = np.linalg.solve(grid.affine, guest.affine)
    ends = to_grid[2, 3] + np.array([0, guest.shape[2] - 1]) * to_grid[2, 2]
    low = min(0, int(np.rint(ends.min())))
    high = max(grid.shape[2] - 1, int(np.rint(ends.max())))
    shape = (*grid.shape[:2], high + 1 - low)
    if (need := shape[0] * shape[1] * shape[2] * 4) > (budget := memory_budget()):
        what = f"a grid around {volume.source} and {other.source} ({'x'.join(map(str, shape))} voxels)"
        raise TooLarge(what, need, budget, "check that both belong to the same scan")
    affine = grid.affine.copy()
    affine[:3, 3] += low * affine[:3, 2]
    return replace(grid, voxels=np.zeros(shape, np.uint8, order="F"), affine=affine, sparse=False)
