"""Refusing a scan given in place of a mask, although its voxels are whole numbers too."""

from __future__ import annotations

import numpy as np

from mona_infer.errors import InputError
from mona_infer.io.read import label_ids
from mona_infer.volume import Volume
from mona_kernels.native import Labels

MANY = 32  # with fewer ids, a file is never mistaken for a scan
PLANES = 9  # slices of a volume that are checked
ALIKE = 0.5  # at least this fraction of a class's voxels have an equal neighbour in a mask; far fewer do in a scan


def mask_ids(volume: Volume) -> Labels:
    """The label ids of a mask; an error if it is a scan."""
    ids = label_ids(volume)
    if int(ids.max()) > MANY and _looks_like_a_scan(ids):
        raise InputError(
            f"{volume.source} looks like a scan, not a mask: it has more than {MANY} different values that change "
            "from voxel to voxel; give the mask"
        )
    return ids


def _looks_like_a_scan(ids: Labels) -> bool:
    """Grey values change from voxel to voxel; classes, even thousands of them, form regions.

    The median over all values decides, not the most common value: much of a scan is dark, and dark voxels are often
    equal.
    """
    counted, alike = np.zeros((2, int(ids.max()) + 1), np.int64)
    for k in np.unique(np.linspace(0, ids.shape[2] - 1, PLANES).round().astype(int)):
        plane = ids[:, :, k]
        same = np.zeros(plane.shape, bool)
        same[1:] |= plane[1:] == plane[:-1]
        same[:, 1:] |= plane[:, 1:] == plane[:, :-1]
        counted += np.bincount(plane.ravel(), minlength=len(counted))
        alike += np.bincount(plane[same], minlength=len(alike))
    there = np.nonzero(counted[1:])[0] + 1
    return len(there) > MANY and float(np.median(alike[there] / counted[there])) < ALIKE
