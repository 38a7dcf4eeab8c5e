"""A mask of which only the slices with labels are known (a DICOM-SEG), put on a grid that has all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mona_infer.memory import TooLarge, memory_budget
from mona_infer.volume import Volume

TOLERANCE = 0.01  # of a voxel, at a slice's corners: as in `align`


def placed(volume: Volume, other: Volume) -> Volume | None:
    """`volume` on the grid of `other`, slice by slice, background elsewhere; None where a label would not lie on it.

    Each slice is placed by itself, so it does not matter which slices were left out, nor how far apart the file says
    that slices are.
    """
    labelled = np.flatnonzero(volume.voxels.any(axis=(0, 1)))
    slices = labelled if labelled.size else np.arange(volume.shape[2])[:1]  # of a mask of nothing, where it would lie
    spots = _corners(volume, other, slices)  # slices 3 3
    first, across, down = spots[:, 0], spots[:, 1] - spots[:, 0], spots[:, 2] - spots[:, 0]
    size = np.array(volume.shape[:2])
    along = [int(np.abs(way[0]).argmax()) for way in (across, down)]  # axes of `other` that i and j run along
    if along[0] == along[1] or tuple(other.shape[a] for a in along) != tuple(size):
        return None
    rest = 3 - sum(along)
    view = np.zeros(other.shape, volume.voxels.dtype, order="F")
    turned = view.transpose(*along, rest)
    expected = np.rint(first)
    for way, axis, count, flip in zip((across, down), along, size, (0, 1), strict=True):
        backwards = count > 1 and way[0, axis] < 0
        expected[:, axis] = count - 1 if backwards else 0
        if backwards:
            turned = turned[::-1] if flip == 0 else turned[:, ::-1]
    for at, corner in enumerate(((0, 0), (1, 0), (0, 1))):
        target = expected.copy()
        for axis, count, moved in zip(along, size, corner, strict=True):
            target[:, axis] = np.where(moved, count - 1 - expected[:, axis], expected[:, axis])
        if np.abs(spots[:, at] - target).max() > TOLERANCE:
            return None
    places = expected[:, rest].astype(np.int64)
    if labelled.size:
        if places.min() < 0 or places.max() >= other.shape[rest]:
            return None
        turned[:, :, places] = volume.voxels[:, :, slices]
    return replace(volume, voxels=view, affine=other.affine, header=other.header, sparse=False)


def around_both(volume: Volume, other: Volume) -> Volume:
    """The slices of `other`, or of `volume` where those are closer together, and more of them to hold both masks."""
    grid, guest = (other, volume) if other.spacing[2] <= volume.spacing[2] * 1.01 else (volume, other)
    heights = _corners(guest, grid, np.array([0, guest.shape[2] - 1]))[:, 0, 2]
    low = min(0, int(np.rint(heights.min())))
    high = max(grid.shape[2] - 1, int(np.rint(heights.max())))
    shape = (*grid.shape[:2], high + 1 - low)
    if (need := shape[0] * shape[1] * shape[2] * 4) > (budget := memory_budget()):
        what = f"a grid around {volume.source} and {other.source} ({'x'.join(map(str, shape))} voxels)"
        raise TooLarge(what, need, budget, "check that both belong to one scan")
    affine = grid.affine.copy()
    affine[:3, 3] += low * affine[:3, 2]
    return replace(grid, voxels=np.zeros(shape, np.uint8, order="F"), affine=affine, sparse=False)


def _corners(volume: Volume, other: Volume, slices: NDArray[np.int64]) -> NDArray[np.float64]:
    """First voxel, last of the first column and last of the first row of each slice, as indices in `other`."""
    i, j = volume.shape[0] - 1, volume.shape[1] - 1
    to_other = np.linalg.solve(other.affine, volume.affine)
    spots = np.array([[(*ij, k) for ij in ((0, 0), (i, 0), (0, j))] for k in slices], np.float64)
    found: NDArray[np.float64] = spots @ to_other[:3, :3].T + to_other[:3, 3]
    return found
