"""How unsure the network is of a scan: the entropy of its answer where organs are or may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.probabilities import Logits

MAYBE = 0.1  # the chance of any organ from which a pixel counts: organs, their borders, and what was nearly called one
NOTHING = 1.0  # the uncertainty of a scan without such a pixel: an organ was missed, or is not in it


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Of some slices of a scan; 0 is certain, 1 is a guess among all classes."""

    slices: NDArray[np.float64]  # n: of all organs together; NaN where no pixel counts
    organs: NDArray[np.float64]  # n x organs: over the pixels where the organ is the likeliest one; NaN where none is
    found: NDArray[np.bool_]  # organs: whether it wins a pixel anywhere

    @property
    def overall(self) -> float:
        """Every slice counts the same: at the ends of an organ, where networks fail, it has few pixels."""
        known = self.slices[~np.isnan(self.slices)]
        return float(known.mean()) if len(known) else NOTHING

    @classmethod
    def joined(cls, parts: list[Uncertainty]) -> Uncertainty:
        return cls(
            np.concatenate([part.slices for part in parts]),
            np.concatenate([part.organs for part in parts]),
            np.any([part.found for part in parts], axis=0),
        )


def uncertainty(chances: Logits) -> Uncertainty:
    """From probabilities (n, classes, rows, columns), the background first.

    Most pixels are background that the network is sure of, and would hide what it is unsure of: they do not count.
    """
    count, classes = chances.shape[:2]
    entropy = _entropy(chances)
    counts = 1 - chances[:, 0] >= MAYBE
    likeliest = chances[:, 1:].argmax(axis=1)
    organs = np.stack([_means(entropy, counts & (likeliest == c)) for c in range(classes - 1)], axis=1)
    won = np.bincount(chances.argmax(axis=1).ravel(), minlength=classes)[1:] > 0
    return Uncertainty(_means(entropy, counts), organs.reshape(count, classes - 1), won)


def _entropy(chances: Logits) -> Logits:
    """-sum p log p over the classes, as a fraction of its largest value."""
    terms = chances * np.log(np.maximum(chances, np.finfo(np.float32).tiny))
    total: Logits = -terms.sum(axis=1) / np.float32(math.log(chances.shape[1]))
    return total


def _means(values: Logits, where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean of each slice over some of its pixels; NaN where there are none."""
    pixels = where.sum(axis=(1, 2))
    sums = np.where(where, values, 0).sum(axis=(1, 2), dtype=np.float64)
    return np.where(pixels > 0, sums / np.maximum(pixels, 1), np.nan)
