"""The seeds of one setting put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mona_train.bench.published import ALL_LABELS, Published
from mona_train.bench.reading import Measured


@dataclass(frozen=True)
class Entry:
    """One setting at one ratio, over its seeds."""

    label: str
    rows: tuple[Measured, ...]  # by seed
    published: Published | None

    @property
    def first(self) -> Measured:
        return self.rows[0]

    @property
    def method(self) -> str:
        return self.first.method

    @property
    def every_label(self) -> bool:
        """Trained on all labels: what the others would like to reach, and belongs to each ratio."""
        return self.method == ALL_LABELS

    @property
    def seeds(self) -> list[int]:
        return [row.seed for row in self.rows]

    @cached_property
    def dscs(self) -> list[float]:
        return [float(row.summary()["dsc"]) for row in self.rows]

    @property
    def dsc(self) -> float:
        return float(np.mean(self.dscs))

    @property
    def last(self) -> float | None:
        """DSC after the last step, which nobody chose."""
        if self.first.part != "validation":
            return None
        return _mean(row.summary("last")["dsc"] for row in self.rows if "last" in row.scores["validation"])

    @property
    def asd(self) -> float | None:
        return _mean(row.summary().get("asd") for row in self.rows)

    def legacy(self, metric: str) -> float | None:
        """By the published code's rules."""
        return _mean(row.legacy(metric) for row in self.rows)

    @property
    def test(self) -> float | None:
        """On test cases, beside validation."""
        if self.first.part == "test":
            return None
        return _mean(row.scores["test"]["dsc"] for row in self.rows if "test" in row.scores)

    @property
    def minutes(self) -> float | None:
        """None where the runs did not record it."""
        return _minutes(row.seconds for row in self.rows)

    @property
    def core_minutes(self) -> float | None:
        """Of processor; None where the runs did not record it."""
        return _minutes(row.processor_seconds for row in self.rows)

    def of_class(self, name: str) -> float:
        return float(np.mean([row.summary()["classes"][name]["dsc"] for row in self.rows]))

    @cached_property
    def case_dsc(self) -> dict[str, float]:
        """Case -> DSC, mean over seeds; empty where the rows did not keep the same cases."""
        found = [row.case_dsc() for row in self.rows]
        if any(scores.keys() != found[0].keys() for scores in found):
            return {}
        return {case: float(np.mean([scores[case] for scores in found])) for case in found[0]}

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Validation DSC by step, mean over the seeds that were validated then."""
        at: dict[float, list[float]] = {}
        for row in self.rows:
            for step, dsc in row.curve:
                at.setdefault(int(step), []).append(float(dsc))
        return [(step, float(np.mean(found))) for step, found in sorted(at.items())]


def _minutes(seconds: Iterable[float | None]) -> float | None:
    mean = _mean(seconds)
    return None if mean is None else mean / 60


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
