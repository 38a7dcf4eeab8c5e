"""A set of masks measured against their references: every case, the means, and the rules in words."""

from __future__ import annotations

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.errors import InputError
from mona_infer.evaluation.metrics import DEFINITIONS, METRICS, empty_score, score_case, summarise
from mona_infer.geometry.align import on_one_grid, other_names
from mona_infer.io.label_maps import mask_ids
from mona_infer.io.naming import patients_of
from mona_infer.io.pairing import Case
from mona_infer.io.read import read_volume
from mona_infer.system.progress import progress
from mona_kernels.native import cores

if TYPE_CHECKING:
    from mona_infer.cohort.spread import Map


def measure(
    cases: list[Case],
    classes: list[int] | None = None,
    definition: str = "sound",
    frame: int | None = None,
    series: str | None = None,
    tolerance: float = 2.0,
    names: dict[int, str] | None = None,
    spread: Map | None = None,
) -> dict[str, Any]:
    """The whole evaluation as one JSON-ready object; `spread` is a map over the workers of a cluster."""
    workers = min(cores(), len(cases))  # reading dominates and releases the GIL: one case a core

    def run(case: Case) -> Measured:
        given = read_volume(case.prediction, frame=frame, series=series)
        prediction, reference = on_one_grid(given, read_volume(case.reference, frame=frame))
        masks, threads = (mask_ids(prediction), mask_ids(reference)), cores() // workers
        scores = score_case(
            *masks, reference.steps, classes, definition=definition, tolerance=tolerance, threads=threads
        )
        there = {c for c in classes if any((mask == c).any() for mask in masks)} if classes else set(scores)
        notes = (*reference.notes, *prediction.notes, *other_names(prediction, reference))
        labels = {**prediction.names, **reference.names}
        return Measured(scores, there, reference.spacing, reference.diagonal, notes, labels)

    if spread is not None:
        measured = list(spread(run, cases))
    else:
        with ThreadPoolExecutor(workers) as pool:
            measured = list(progress(pool.map(run, cases), len(cases), "measuring"))
    for note in sorted({note for m in measured for note in m.notes}):
        typer.echo(f"note: {note}", err=True)
    every = classes or sorted({label for m in measured for label in m.scores})
    nowhere = sorted(set(every) - {label for m in measured for label in m.there})
    if nowhere:  # a mistyped id would otherwise be right everywhere, by absence
        raise InputError(f"class {nowhere[0]} of --classes is in neither predictions nor references; check its id")
    # A class that no mask of a case holds was not looked at there: under each definition that is both empty.
    absent = empty_score(False, False, definition)
    scores = [{label: m.scores.get(label, absent) for label in every} for m in measured]
    rules, patients = DEFINITIONS[definition], patients_of([case.name for case in cases])
    in_files = {label: name for m in measured for label, name in m.names.items()}
    called = {str(label): {"name": (in_files | (names or {})).get(label, str(label))} for label in every}
    mean = summarise(scores, [m.diagonal for m in measured], [patients[case.name] for case in cases])
    mean["classes"] = {label: called[label] | entry for label, entry in mean["classes"].items()}
    return {
        "definition": definition,
        "unit": rules.unit,
        "tolerance": tolerance,
        "rules": list(rules.explanation),
        "cases": [
            {
                "case": case.name,
                "prediction": str(case.prediction),
                "reference": str(case.reference),
                "spacing": [round(s, 6) for s in m.spacing],
                "classes": {
                    str(label): called[str(label)] | {k: v for k, v in asdict(score).items() if k in METRICS or v}
                    for label, score in found.items()
                },
            }
            for case, m, found in zip(cases, measured, scores, strict=True)
        ],
        "mean": mean,
    }


@dataclass(frozen=True)
class Measured:
    scores: dict[int, Any]
    there: set[int]  # classes that at least one of the two masks holds
    spacing: tuple[float, float, float]
    diagonal: float
    notes: tuple[str, ...]
    names: dict[int, str]  # of classes, where a file has them


def as_csv(report: dict[str, Any]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["case", "class", "name", *METRICS, "miss", "definition", "unit", "tolerance", "spacing"])
    for case in report["cases"]:
        spacing = "x".join(f"{s:g}" for s in case["spacing"])
        for label, score in case["classes"].items():
            numbers = ["" if score[m] is None else f"{score[m]:.6f}" for m in METRICS]
            rules = report["definition"], report["unit"], f"{report['tolerance']:g}"
            rows.writerow(
                [case["case"], label, score["name"], *numbers, int(score.get("miss", False)), *rules, spacing]
            )
    return text.getvalue()
