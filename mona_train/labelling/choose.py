"""Patients chosen one after another: each stands for as many others as possible that the network is unsure about.

Greedy facility location: the patient whose label brings all others nearest to a labelled one, those weighing most that
the network is least sure of.  With few labels the typical patients teach most (Hacohen et al., ICML 2022); the patient
farthest from all others, which k-centre takes, is an odd one, and did worse here than chance (docs/results.md).
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
    others: int  # candidates that are nearer to it than to any labelled patient or earlier pick
    above: int | None = None  # the nearest candidate picked before, if it is nearer than any labelled patient


def choose(
    candidates: NDArray[np.float64], labelled: NDArray[np.float64], uncertain: NDArray[np.float64]
) -> list[Pick]:
    """All candidates, in the order to label them; of equal ones, the first.

    `candidates` (n, d) and `labelled` (m, d) are embeddings of length 1, `uncertain` has n values.  Uncertainty enters
    as a rank: networks are rarely calibrated.
    """
    known = _distances(candidates, labelled)
    among = _distances(candidates, candidates)
    nearest, weight = known.argmin(axis=1), _ranks(uncertain)
    gap, picked = known.min(axis=1), list[Pick]()  # of each, to the nearest that has a label
    left = list(range(len(candidates)))
    while left:
        nearer_by = np.clip(gap - among[left], 0, None)  # (left, n): each of all, if that one of the left had a label
        index = left.pop(int(np.round(nearer_by @ weight, DIGITS).argmax()))
        before = [pick.index for pick in picked]
        above = min(before, key=lambda other: float(among[index, other]), default=None)
        distance = float(known[index].min())
        is_near = above is not None and among[index, above] < distance
        others = int((among[index] < gap).sum() - (gap[index] > 0))
        picked.append(Pick(index, int(nearest[index]), distance, others, above if is_near else None))
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
