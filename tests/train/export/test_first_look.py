"""Weights of the first look in half precision: the nearest, or a neighbour by chance, the same in every export."""

from __future__ import annotations

import numpy as np

from mona_train.export.first_look import ATTEMPTS, rounded


def test_a_weight_becomes_one_of_its_two_neighbours() -> None:
    values = np.random.default_rng(0).normal(0, 0.1, 5000).astype(np.float32)
    values[:4] = 0, 0.5, -0.25, 1  # these are fp16 as they are
    nearest = values.astype(np.float16)
    assert (rounded(values, 0) == nearest).all()
    for attempt in range(1, ATTEMPTS):
        found = rounded(values, attempt)
        assert found.dtype == np.float16 and (found == rounded(values, attempt)).all()
        assert (found[:4] == nearest[:4]).all()
        assert 0.1 < (found != nearest).mean() < 0.4  # a quarter, if the remainders are spread evenly
        below, above = (np.nextafter(nearest, np.float16(end)) for end in (-np.inf, np.inf))
        moved = np.where(values > nearest.astype(np.float32), above, below)
        assert (found[found != nearest] == moved[found != nearest]).all()
        assert abs(float((found.astype(np.float64) - values).mean())) < 3e-6  # up as often as down


def test_attempts_differ() -> None:
    values = np.random.default_rng(1).normal(0, 0.1, 500).astype(np.float32)
    assert len({rounded(values, attempt).tobytes() for attempt in range(ATTEMPTS)}) == ATTEMPTS
