"""Numbers of every slice of a mask, so that a page can show where a structure is and lead to the slices to check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_kernels.native import Labels


def slice_numbers(
    mask: Labels, reference: Labels | None, ids: Sequence[int], area: float, sure: Sequence[float | None] | None = None
) -> dict[str, Any]:
    """Areas in mm2 and, against a reference, DSC: one row per slice, one column per class; masks are slices first.

    DSC is None for a class that neither mask has in that slice.  `sure` is the network's confidence in each slice.
    """
    counts = _counts(mask, ids)
    found: dict[str, Any] = {"areas": np.round(counts * area, 1).tolist()}
    if sure is not None:
        found["sure"] = [None if value is None else round(value, 3) for value in sure]
    if reference is not None:
        wanted = _counts(reference, ids)
        common = _counts(np.where(mask == reference, mask, 0), ids)
        total = counts + wanted
        dsc = 2 * common / np.maximum(total, 1)
        found["dsc"] = [
            [round(float(d), 3) if t else None for d, t in zip(*row, strict=True)]
            for row in zip(dsc, total, strict=True)
        ]
    return found


def _counts(labels: NDArray[Any], ids: Sequence[int]) -> NDArray[np.int64]:
    """Pixels of each class in each slice."""
    most = int(max(labels.max(initial=0), *ids)) + 1
    return np.array([np.bincount(plane.ravel(), minlength=most)[list(ids)] for plane in labels], np.int64)
