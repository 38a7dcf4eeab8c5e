"""What a model predicted for the cases of the data set: masks and reports, kept for each model, and how doubtful."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mona_infer.serving.dataset import Case
from mona_infer.serving.state import State, read_json, write_json


@dataclass(frozen=True)
class Prediction:
    mask: Path
    report: dict[str, Any]
    doubt: float
    label_mark: str | None  # the label that its scores were measured against

    @property
    def warnings(self) -> list[str]:
        return list(self.report.get("warnings", []))

    @property
    def scores(self) -> dict[str, float] | None:
        """DSC by class."""
        scores = self.report.get("scores")
        return {name: float(score["dsc"]) for name, score in scores.items()} if scores else None


class Predictions:
    def __init__(self, state: State) -> None:
        self._folder = state.predictions
        self._known: dict[Path, tuple[int, dict[str, Any]]] = {}

    def place(self, case: Case, seal: str) -> Path:
        return self._folder / seal[:16] / f"{case.key}.nii.gz"

    def of(self, case: Case, seal: str | None) -> Prediction | None:
        if seal is None:
            return None
        mask = self.place(case, seal)
        path = mask.with_name(f"{case.key}.json")
        try:
            mark = path.stat().st_mtime_ns
        except OSError:
            return None
        if self._known.get(path, (0,))[0] != mark:
            found = read_json(path)
            if found is None:
                return None
            self._known[path] = mark, found
        found = self._known[path][1]
        return Prediction(mask, found["report"], found["doubt"], found.get("label"))

    def keep(self, case: Case, seal: str, report: dict[str, Any]) -> None:
        """The report of a mask that lies in its place already."""
        entry = {"case": case.name, "report": report, "doubt": doubt_of(report), "label": label_mark(case)}
        write_json(self.place(case, seal).with_name(f"{case.key}.json"), entry)


def label_mark(case: Case) -> str | None:
    """Tells whether a case's label is still the one that something was measured against."""
    if case.label is None:
        return None
    found = case.label.stat()
    return f"{found.st_size}-{found.st_mtime_ns}"


def doubt_of(report: dict[str, Any]) -> float:
    """0 to 1: how far the least certain class of a mask is from certain; 1 where nothing was found at all.

    The certainty of a class is the network's mean probability where it chose that class.
    """
    frames = report.get("frames") or [report]
    sure = [c["confidence"] for frame in frames for c in frame.get("classes", {}).values()]
    known = [float(value) for value in sure if value is not None and math.isfinite(value)]
    return round(1.0 - min(known), 4) if known else 1.0


@dataclass(frozen=True)
class Candidate:
    """A case as an order of the cases sees it."""

    case: Case
    labelled: str
    prediction: Prediction | None


Order = Callable[[list[Candidate]], list[Candidate]]


def doubtful_first(candidates: list[Candidate]) -> list[Candidate]:
    """Cases without a label first, and among them the doubtful ones; those not predicted yet come after these."""

    def rank(candidate: Candidate) -> tuple[bool, bool, float, str]:
        doubt = candidate.prediction.doubt if candidate.prediction else 0.0
        return candidate.labelled != "none", candidate.prediction is None, -doubt, candidate.case.name

    return sorted(candidates, key=rank)
