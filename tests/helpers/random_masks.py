"""Masks of every kind that a distance may meet: noise, blobs, single voxels, slabs at the border, all of it."""

import numpy as np


def random_mask(rng, shape):
    kind = rng.integers(5)
    mask = np.zeros(shape, np.uint8)
    if kind == 0:
        mask[tuple(rng.integers(0, n) for n in shape)] = 1
    elif kind == 1:
        mask[:] = rng.random(shape) < rng.choice([0.02, 0.3, 0.9])
    elif kind == 2:
        grid = np.meshgrid(*[np.arange(n) - rng.uniform(0, n) for n in shape], indexing="ij")
        mask[:] = sum((g / rng.uniform(1, max(2, n / 2))) ** 2 for g, n in zip(grid, shape, strict=True)) < 1
    elif kind == 3:
        mask[: rng.integers(1, shape[0] + 1)] = 1
    else:
        mask[:] = 1
    return mask
