"""How good a mask is: overlap and surface distances per class, under one of two named definitions.

`sound`  true spacing (mm); a class absent from both masks is correct (DSC 1) and has no distance; a class in only
         one of them is a miss (DSC 0): it counts in the miss rate, and in mean distances as the volume's diagonal.
`paper`  the published evaluation (method 1.5.3-4), only for comparison with published tables: distances in
         voxels; an empty prediction scores DSC 0 but distance 0; a prediction of an absent class scores DSC 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_kernels import native
from mona_kernels.native import Labels, Spacing

METRICS = ("dsc", "jaccard", "sensitivity", "precision", "nsd", "asd", "assd", "hd95", "hd")
DISTANCES = METRICS[5:]  # in mm or voxels; the others are fractions from 0 to 1
BOOTSTRAPS = 2000
TOLERANCE = 2.0  # for NSD, in mm (`paper`: voxels)
ROUNDED = 1e-6  # headers store spacings in 32 bits: two voxels of 0.8 mm add up to 1.60000002


@dataclass(frozen=True)
class Definition:
    name: str
    unit: str
    explanation: tuple[str, ...]  # what someone reading the numbers needs to know


DIRECTIONS = (
    "ASD is measured from prediction to reference; ASSD, HD95 and HD pool the distances of both directions "
    "(HD95 as in medpy; MONAI's is the larger of the two directions' 95th percentiles).",
    "NSD (surface Dice) is the fraction of both masks' border voxels within the tolerance of the other border, "
    "each counted once (as in MONAI; DeepMind's surface-distance weights them by area).",
)
DEFINITIONS = {
    "sound": Definition(
        "sound",
        "mm",
        (
            "Distances are in millimetres between border voxels (6-connectivity), with each reference's own spacing "
            "(and its true geometry if the voxel axes are not at right angles, as with a tilted gantry).",
            *DIRECTIONS,
            "A class absent from both masks scores DSC 1 and has no distance. A class in only one of them is a miss: "
            "DSC 0, no distance of its own; it counts in the miss rate, and in mean distances as the volume's "
            "diagonal. 'scored' is the mean distance without misses. Jaccard and NSD follow DSC: 1 and 0. "
            "Sensitivity is left out if the reference lacks the class, precision if the prediction does.",
        ),
    ),
    "paper": Definition(
        "paper",
        "voxel",
        (
            "Distances are in voxels, whatever the spacing, between border voxels (6-connectivity).",
            *DIRECTIONS,
            "Published empty-mask rule: an empty prediction scores DSC 0 and distance 0; a prediction of a class "
            "that the reference lacks scores DSC 1 and distance 0. It rewards mistakes: use it only to compare with "
            "published tables. NSD, with its tolerance in voxels, follows DSC. Sensitivity is left out if the "
            "reference lacks the class, precision if the prediction does.",
        ),
    ),
}


@dataclass(frozen=True)
class Score:
    """One class in one case; None if the definition gives no number."""

    dsc: float
    jaccard: float
    asd: float | None = None
    assd: float | None = None
    hd95: float | None = None
    hd: float | None = None
    nsd: float | None = None
    sensitivity: float | None = None
    precision: float | None = None
    miss: bool = False


def score_case(
    prediction: Labels,
    reference: Labels,
    spacing: Spacing,
    classes: list[int] | None = None,
    *,
    definition: str = "sound",
    tolerance: float = TOLERANCE,
    threads: int = 0,
) -> dict[int, Score]:
    """Score the label maps of one case; `classes` defaults to every id above 0 in either map.

    `spacing` is the grid's spacing, or its `Volume.steps`, which also give correct distances on a sheared grid.
    `tolerance` is for NSD, in the definition's unit.
    """
    a, b = prediction, reference
    if a.dtype != b.dtype:
        a, b = a.astype(np.uint16), b.astype(np.uint16)
    if b.flags.f_contiguous:  # NIfTI and DICOM order: walk through memory in sequence
        a, b, spacing = a.T, b.T, spacing[::-1]
    if definition == "paper":
        spacing = (1.0, 1.0, 1.0)
    overlaps = native.overlaps(a, b, threads=threads)
    scores = {}
    for label in sorted(overlaps) if classes is None else classes:
        overlap = overlaps.get(label, native.Overlap(0, 0, 0, (0,) * 6))
        if overlap.in_a and overlap.in_b:
            there, back = native.surface_distances(a, b, label, overlap, spacing, threads=threads)
            both = np.concatenate([there, back])
            scores[label] = Score(
                dsc=2 * overlap.in_both / (overlap.in_a + overlap.in_b),
                jaccard=overlap.in_both / (overlap.in_a + overlap.in_b - overlap.in_both),
                asd=float(there.mean()),
                assd=float(both.mean()),
                hd95=float(np.percentile(both, 95)),
                hd=float(both.max()),
                nsd=float((both <= tolerance * (1 + ROUNDED)).mean()),
                sensitivity=overlap.in_both / overlap.in_b,
                precision=overlap.in_both / overlap.in_a,
            )
        else:
            scores[label] = empty_score(overlap.in_a > 0, overlap.in_b > 0, definition)
    return scores


def empty_score(in_prediction: bool, in_reference: bool, definition: str) -> Score:
    """The score of a class that is absent from at least one of the masks."""
    # no voxel in common: 0 if there are any, undefined if there are none
    sensitivity, precision = 0.0 if in_reference else None, 0.0 if in_prediction else None
    if definition == "paper":
        value = 1.0 if in_prediction else 0.0
        return Score(value, value, 0.0, 0.0, 0.0, 0.0, value, sensitivity, precision)
    miss = in_prediction or in_reference
    value = 0.0 if miss else 1.0
    return Score(value, value, nsd=value, sensitivity=sensitivity, precision=precision, miss=miss)


def summarise(
    scores: list[dict[int, Score]], diagonals: list[float], patients: list[str] | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Means over cases, per class and over classes, with 95 % bootstrap intervals.

    A miss counts in a mean distance as its case's diagonal; `scored` leaves misses out.  The bootstrap resamples
    patients, because two frames of one heart are not independent samples.
    """
    classes = sorted({label for case in scores for label in case})
    values = np.full((len(scores), len(classes), len(METRICS)), np.nan)
    misses = np.zeros(values.shape[:2], bool)
    present = np.zeros(values.shape[:2], bool)
    for row, case in enumerate(scores):
        for column, label in enumerate(classes):
            score = case[label]
            misses[row, column] = score.miss
            present[row, column] = score.miss or score.assd is not None
            for m, metric in enumerate(METRICS):
                value = getattr(score, metric)
                values[row, column, m] = np.nan if value is None else value
    charged = values.copy()
    charged[..., -len(DISTANCES) :][misses] = np.array(diagonals)[np.nonzero(misses)[0], None]

    means = _means(np.ones((1, len(scores))), charged)[0]
    scored = _means(np.ones((1, len(scores))), values)[0]
    resampled = None
    people, owner = np.unique(patients or np.arange(len(scores)), return_inverse=True)
    if len(people) > 1:
        draws = np.random.default_rng(seed).multinomial(len(people), [1 / len(people)] * len(people), BOOTSTRAPS)
        resampled = _means(draws[:, owner].astype(float), charged)

    def entry(pick: Any) -> dict[str, Any]:
        counted = present[:, pick].sum()
        return {
            **dict(zip(METRICS, _over(means[pick]), strict=True)),
            "scored": dict(zip(DISTANCES, _over(scored[pick])[-len(DISTANCES) :], strict=True)),
            "miss_rate": float(misses[:, pick].sum() / counted) if counted else None,
            "ci95": None if resampled is None else dict(zip(METRICS, _interval(resampled[:, pick]), strict=True)),
        }

    per_class = {str(label): entry([column]) for column, label in enumerate(classes)}
    return {**entry(slice(None)), "classes": per_class}


def _means(weights: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted means over cases: (draws, cases) x (cases, classes, metrics) -> (draws, classes, metrics)."""
    known = ~np.isnan(values)
    total = np.tensordot(weights, np.where(known, values, 0), 1)
    count = np.tensordot(weights, known.astype(float), 1)
    return np.asarray(np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0))


def _over(class_means: NDArray[np.float64]) -> list[float | None]:
    """Mean over classes of each metric; None if no class has a value."""
    return [float(np.nanmean(m)) if not np.isnan(m).all() else None for m in class_means.T]


def _interval(draws: NDArray[np.float64]) -> list[list[float] | None]:
    """2.5th and 97.5th percentile over draws (draws, classes, metrics) of the mean over classes."""
    known = ~np.isnan(draws)
    count = known.sum(axis=1)
    means = np.divide(np.where(known, draws, 0).sum(axis=1), count, out=np.full(count.shape, np.nan), where=count > 0)
    kept = [m[~np.isnan(m)] for m in means.T]
    return [[float(q) for q in np.percentile(m, (2.5, 97.5))] if len(m) else None for m in kept]
