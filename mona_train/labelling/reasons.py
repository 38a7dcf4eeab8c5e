"""Why a patient was chosen, in words that a person who draws labels can check by looking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mona_train.labelling.uncertainty import Uncertainty

UNSURE = 0.75  # the network is called unsure of an organ in the quarter of all slices where it is least sure of it:
# no fixed limit would do, because networks are rarely calibrated
FAR, NEAR = 0.75, 0.5  # of the candidates' distances


class Reasons:
    """Says how a candidate stands out."""

    def __init__(self, organs: Sequence[str], scans: Sequence[Uncertainty], distances: Sequence[float]) -> None:
        """`scans` of everyone, labelled or not; `distances` of the candidates to their nearest labelled patient."""
        self._organs = organs
        every = np.concatenate([scan.organs for scan in scans])
        levels = [column[~np.isnan(column)] for column in every.T]
        self._limits = np.array([np.quantile(column, UNSURE) if len(column) else np.inf for column in levels])
        self._far, self._near = np.quantile(distances, FAR), np.quantile(distances, NEAR)

    def of(self, scans: Sequence[Uncertainty], distance: float, nearest: str, others: int, above: str | None) -> str:
        like = {0: "", 1: "; 1 other patient without a label is like it"}
        stands_for = like.get(others, f"; {others} other patients without a label are like it")
        return f"{self._certainty(scans)}; {self._likeness(distance, nearest, above)}{stands_for}"

    def _certainty(self, scans: Sequence[Uncertainty]) -> str:
        found = np.any([scan.found for scan in scans], axis=0)
        missing = [name for name, there in zip(self._organs, found, strict=True) if not there]
        if len(missing) == len(self._organs):
            return "the network finds nothing"
        if missing:
            return f"the network finds no {' and no '.join(missing)}"
        every = np.concatenate([scan.organs for scan in scans])
        unsure = (every > self._limits).sum(axis=0)  # NaN is not
        worst = int(unsure.argmax())
        if not unsure[worst]:
            return "the network is fairly sure"
        return f"the network is unsure about the {self._organs[worst]} in {unsure[worst]} of {len(every)} slices"

    def _likeness(self, distance: float, nearest: str, above: str | None) -> str:
        if distance > self._far:
            words = "unlike any labelled patient"
        elif distance > self._near:
            words = f"not much like any labelled patient ({nearest} is nearest)"
        else:
            words = f"like the labelled patient {nearest}"
        return words + (f", but like {above} above" if above is not None else "")
