"""Caches made up in memory: cases without files, for splits and streams."""

import numpy as np

from mona_infer.task import CARDIAC
from mona_train.data.cache import Cache, CachedCase


def cache_of(cases, dataset="mine"):
    return Cache(
        None, dataset, CARDIAC, tuple(cases), {}, np.zeros((0, 4, 4), np.uint16), np.zeros((0, 4, 4), np.uint8)
    )


def cases(patients, frames=2, *, slices=3, unlabelled=(), twins=(), part=lambda n: None):
    """`twins` are pairs of patients with the same images."""
    out, first = [], 0
    for n in range(patients):
        for frame in range(1, frames + 1):
            source = next((a for a, b in twins if b == n), n)
            out.append(
                CachedCase(
                    name=f"p{n:02d}_frame{frame:02d}",
                    patient=f"p{n:02d}",
                    part=part(n),
                    first=first,
                    slices=slices,
                    first_label=None if n in unlabelled else first,
                    reversed=False,
                    shape=(slices, 9, 9),
                    spacing=(8.0, 1.0, 1.0),
                    low=0.0,
                    high=1.0,
                    voxels=(1, 1, 1, 1),
                    content=(1.0,) * slices,
                    image_hash=f"{source}/{frame}",
                )
            )
            first += slices
    return out
