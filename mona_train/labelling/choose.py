"""Patients chosen one after another: far from all that is labelled or already chosen, and hard for the network.

Greedy k-centre (Sener and Savarese, ICLR 2018), its distance times the uncertainty.  Both enter as ranks: a network
that is sure of everything, or whose embeddings are close together, then gives the same order as any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DIGITS = 9  # distances and uncertainties that differ by less are equal: sums in another order differ in the last bits


@dataclass(frozen=True)
class Pick:
    index: int  # of the candidate
    nearest: int  # labelled patient
    distance: float  # to it
    above: int | None = None  # the nearest candidate picked before, if it is nearer than any labelled patient


def choose(
    candidates: NDArray[np.float64], labelled: NDArray[np.float64], uncertain: NDArray[np.float64]
) -> list[Pick]:
    """All candidates, in the order to label them; of equal ones, the first.

    `candidates` (n, d) and `labelled` (m, d) are embeddings of length 1, `uncertain` has n values.
    """
    known = _distances(candidates, labelled)
    among = _distances(candidates, candidates)
    nearest, weight = known.argmin(axis=1), _ranks(uncertain)
    gap, picked = known.min(axis=1), list[Pick]()
    left = list(range(len(candidates)))
    while left:
        scores = _ranks(gap[left]) * weight[left]
        index = left.pop(int(scores.argmax()))
        before = [pick.index for pick in picked]
        above = min(before, key=lambda other: float(among[index, other]), default=None)
        distance = float(known[index].min())
        nearer = above is not None and among[index, above] < distance
        picked.append(Pick(index, int(nearest[index]), distance, above if nearer else None))
        gap = np.minimum(gap, among[index])
    return picked


def _distances(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between every two of them, from 0 to 2."""
    found = [np.linalg.norm(second - each, axis=1) for each in first]
    return np.asarray(np.round(found, DIGITS)).reshape(len(first), len(second))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The position of each among all, up to 1; equal values share the lowest."""
    rounded = np.round(values, DIGITS)
    return np.asarray((np.searchsorted(np.sort(rounded), rounded) + 1) / len(values))
