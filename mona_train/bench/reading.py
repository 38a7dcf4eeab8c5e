"""Measured rows: the lines of results.jsonl, checked before anything is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from mona_infer.errors import InputError
from mona_train.bench.results import FILE, Line, read_lines

CASE_METRICS = ("dsc", "asd", "legacy_dsc", "legacy_asd")
AGREES = 2e-3  # between the mean of the cases and the summary of the same network
KINDS: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "dict": dict, "tuple": list}


@dataclass(frozen=True)
class Measured:
    """One finished row: what was trained, on what, and how it scored."""

    row: str
    table: str
    dataset: str
    method: str
    preset: str
    steps: int
    seed: int
    code: str  # hash of the sources that trained it
    classes: tuple[str, ...]
    chosen: str  # "best" or "last"
    scores: dict[str, Any]
    seconds: float | None = None
    processor_seconds: float | None = None  # of all its threads; other programs beside it hardly change it
    content: str = ""  # hash of the prepared data
    ratio: float | None = None
    pretrain: str = "default"
    principles: tuple[str, ...] = ()
    student: str = ""
    teacher: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    commit: str = ""
    version: str = ""
    threads: int = 0
    hardware: str = ""
    precision: str = ""
    run: str = ""  # the name of its run folder
    peak_memory: int = 0
    cases: dict[str, Any] = field(default_factory=dict)
    curve: tuple[Any, ...] = ()

    @property
    def part(self) -> str:
        """The patients that numbers are of: validation where there are any, else test."""
        return "validation" if "validation" in self.scores else "test"

    def summary(self, which: str = "chosen") -> dict[str, Any]:
        """Means over cases of the chosen network, or of "last"; on test cases only the chosen one was measured."""
        found: dict[str, Any] = self.scores[self.part]
        if self.part == "test":
            return found
        return dict(found[self.chosen if which == "chosen" else which])

    def case_dsc(self) -> dict[str, float]:
        """Case -> DSC, mean over classes; empty where no single cases were kept."""
        return {case["case"]: float(np.mean(self.of_case(case, "dsc"))) for case in self.cases.get(self.part, ())}

    def patients(self) -> dict[str, str]:
        """Case -> patient."""
        return {case["case"]: case["patient"] for case in self.cases.get(self.part, ())}

    def legacy(self, metric: str) -> float | None:
        """Mean over cases, then classes, under the published code's rules."""
        cases = self.cases.get(self.part, ())
        columns = np.array([self.of_case(case, f"legacy_{metric}") for case in cases], float)
        known = [c[~np.isnan(c)].mean() for c in columns.T if not np.isnan(c).all()]
        return float(np.mean(known)) if known else None

    def of_case(self, case: Mapping[str, Any], metric: str) -> list[float]:
        return [np.nan if case[name].get(metric) is None else float(case[name][metric]) for name in self.classes]


def read_results(path: Path) -> tuple[list[Measured], list[str]]:
    """All rows of a results file, or of the results.jsonl in a folder, and notes on lines that were left out."""
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path} does not exist; `mona bench` writes it")
    lines, torn = read_lines(path)
    found: dict[tuple[str, str], Measured] = {}
    notes = []
    for number, values in lines.items():
        where = f"{path} line {number}"
        measured = _measured(values, where)
        key = measured.table, measured.row  # one run may be a row of several tables
        if key in found:
            notes.append(f"{where} repeats row {measured.row}; the later line counts")
        found[key] = measured
    if torn is not None:  # the process that wrote it was killed
        notes.append(f"{path} line {torn} is incomplete and was left out; run `mona bench` again to finish that row")
    return list(found.values()), notes


def _measured(values: Line, where: str) -> Measured:
    """Fields that this version does not know are ignored."""
    known: dict[str, Any] = {}
    for f in fields(Measured):
        optional = f.default is not MISSING or f.default_factory is not MISSING
        value = values.get(f.name)
        if value is None:
            if not optional:
                raise InputError(f"{where}: {f.name!r} is missing; `mona bench` writes it with every row")
            continue
        kind = KINDS[str(f.type).partition("[")[0].partition(" |")[0]]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"{where}: {f.name!r} must be of type {f.type}, found {value!r}")
        known[f.name] = tuple(value) if kind is list else value
    measured = Measured(**known)
    _check_scores(measured, where)
    return measured


def _check_scores(m: Measured, where: str) -> None:
    """Numbers are there, finite, and those of the cases agree with the summary."""
    try:
        scores = [m.summary()["dsc"], *(m.summary()["classes"][name]["dsc"] for name in m.classes)]
        means = [float(np.mean([m.of_case(case, "dsc") for case in cases])) for cases in [m.cases.get(m.part)] if cases]
        patients = m.patients()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{where}: the scores of row {m.row} are incomplete ({error!r})") from error
    numbers = [*scores, *means, m.seconds or 0.0]
    if not all(isinstance(v, (int, float)) and np.isfinite(v) for v in numbers):
        raise InputError(f"{where}: a score of row {m.row} is not a number")
    if means and abs(means[0] - scores[0]) > AGREES:
        raise InputError(
            f"{where}: the {len(patients)} cases of row {m.row} have a mean DSC of {means[0]:.4f}, but its summary "
            f"says {scores[0]:.4f}; measure the row again"
        )
