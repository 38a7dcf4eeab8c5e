"""`mona evaluate PRED REF`: masks against references, per case and class, with the rules in words."""

from __future__ import annotations

import csv
import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from mona_infer.errors import InputError

SUFFIXES = (".nii.gz", ".nii", ".dcm")


@dataclass(frozen=True)
class Case:
    name: str
    prediction: Path
    reference: Path


def evaluate(
    prediction: Path = typer.Argument(
        ..., metavar="PRED", help="A mask (.nii, .nii.gz, a DICOM-SEG), or a folder of masks."
    ),
    reference: Path = typer.Argument(
        ..., metavar="REF", help="Its reference, or a folder with files of the same names."
    ),
    definition: str = typer.Option("sound", help="'sound' (mm, misses count) or 'paper' (the published code's rules)."),
    classes: str = typer.Option(
        "", metavar="ID[=NAME],...", help="Classes to measure, e.g. 1=RV,2=Myo,3=LV. Default: all."
    ),
    frame: int | None = typer.Option(None, min=0, help="Which frame of 4-D masks to measure, counted from 0."),
    series: str | None = typer.Option(None, help="Which series of a DICOM prediction: number, description or UID."),
    csv_path: str | None = typer.Option(None, "--csv", metavar="[FILE]", help="Write one row per case and class."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Measure masks against references: DSC, Jaccard, ASD, ASSD and HD95 per case and class.

    --csv and --json write to standard output when no file is named, and the table is then left out.
    """
    from mona_infer.metrics import DEFINITIONS

    if definition not in DEFINITIONS:
        raise InputError(f"expected --definition {' or '.join(DEFINITIONS)}, found {definition!r}")
    names = _class_names(classes)
    report = measure(match_cases(prediction, reference), list(names) or None, definition, frame, series)
    written = []
    for where, text in ((csv_path, _as_csv(report)), (json_path, json.dumps(report, indent=2) + "\n")):
        if where == "-":
            typer.echo(text, nl=False)
        elif where:
            from mona_infer.atomic import write_text

            write_text(Path(where), text)
            written.append(where)
    if "-" not in (csv_path, json_path):
        from mona_infer.report import print_report

        print_report(report, report["names"] | names)
        if written:
            typer.echo(f"wrote {', '.join(written)}")


def match_cases(prediction: Path, reference: Path) -> list[Case]:
    """Pair two files, or the files of two folders by name (a reference may carry ACDC's `_gt`)."""
    for path in (prediction, reference):
        if not path.exists():
            raise InputError(f"{path} does not exist")
    if not reference.is_dir():  # the prediction may still be a folder: a DICOM series
        return [Case(_stem(reference), prediction, reference)]
    if not prediction.is_dir():
        raise InputError(f"{reference} is a folder and {prediction} a file; give two files or two folders")
    predictions, references = _masks(prediction), _masks(reference)
    for name in [n for n in references if n.endswith("_gt") and n not in predictions]:
        plain = name.removesuffix("_gt")
        if plain in references:
            raise InputError(f"{references[plain]} and {references[name]} are two references of one case; keep one")
        references[plain] = references.pop(name)
    missing = sorted(set(references) - set(predictions))
    if missing:
        raise InputError(
            f"{prediction} has no mask for {len(missing)} of {len(references)} references "
            f"({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}); a missing case cannot be scored"
        )
    return [Case(name, predictions[name], references[name]) for name in sorted(references)]


def measure(
    cases: list[Case],
    classes: list[int] | None = None,
    definition: str = "sound",
    frame: int | None = None,
    series: str | None = None,
) -> dict[str, Any]:
    """The whole evaluation as one JSON-ready object."""
    from mona_infer.align import on_one_grid, other_names
    from mona_infer.metrics import DEFINITIONS, METRICS, Score, score_case, summarise
    from mona_infer.naming import patients_of
    from mona_infer.progress import progress
    from mona_infer.read import label_ids, read_volume
    from mona_kernels.native import cores

    workers = min(cores(), len(cases))  # reading dominates and releases the GIL: one case a core

    def run(case: Case) -> Measured:
        found = read_volume(case.prediction, frame=frame, series=series)
        prediction, reference = on_one_grid(found, read_volume(case.reference, frame=frame))
        masks, threads = (label_ids(prediction), label_ids(reference)), cores() // workers
        scores = score_case(*masks, reference.spacing, classes, definition=definition, threads=threads)
        there = {c for c in classes if any((mask == c).any() for mask in masks)} if classes else set(scores)
        notes = (*reference.notes, *prediction.notes, *other_names(prediction, reference))
        names = {**prediction.names, **reference.names}
        return Measured(scores, there, reference.spacing, reference.diagonal, notes, names)

    with ThreadPoolExecutor(workers) as pool:
        measured = list(progress(pool.map(run, cases), len(cases), "measuring"))
    for note in sorted({note for m in measured for note in m.notes}):
        typer.echo(f"note: {note}", err=True)
    every = classes or sorted({label for m in measured for label in m.scores})
    nowhere = sorted(set(every) - {label for m in measured for label in m.there})
    if nowhere:  # a mistyped id would otherwise be right everywhere, by absence
        raise InputError(f"class {nowhere[0]} of --classes is in no prediction and no reference; check its id")
    # A class that no mask of a case holds was not looked at there: under each definition that is both empty.
    absent = Score(1.0, 1.0) if definition == "sound" else Score(0.0, 0.0, 0.0, 0.0, 0.0)
    scores = [{label: m.scores.get(label, absent) for label in every} for m in measured]
    rules, patients = DEFINITIONS[definition], patients_of([case.name for case in cases])
    return {
        "definition": definition,
        "unit": rules.unit,
        "rules": list(rules.words),
        "names": {label: name for m in measured for label, name in m.names.items() if label in every},
        "cases": [
            {
                "case": case.name,
                "spacing": [round(s, 6) for s in m.spacing],
                "classes": {
                    str(label): {k: v for k, v in asdict(score).items() if k in METRICS or v}
                    for label, score in found.items()
                },
            }
            for case, m, found in zip(cases, measured, scores, strict=True)
        ],
        "mean": summarise(scores, [m.diagonal for m in measured], [patients[case.name] for case in cases]),
    }


@dataclass(frozen=True)
class Measured:
    scores: dict[int, Any]
    there: set[int]  # classes that at least one of the two masks holds
    spacing: tuple[float, float, float]
    diagonal: float
    notes: tuple[str, ...]
    names: dict[int, str]  # of classes, where a file has them


def _masks(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.endswith(SUFFIXES) and not path.name.startswith("."):
            if _stem(path) in found:
                raise InputError(f"{found[_stem(path)]} and {path} are the same case twice; keep one")
            found[_stem(path)] = path
    if not found:
        raise InputError(f"{folder} holds no .nii, .nii.gz or .dcm file")
    return found


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".nii").removesuffix(".dcm")


def _class_names(text: str) -> dict[int, str]:
    names = {}
    for part in filter(None, text.split(",")):
        label, _, name = part.partition("=")
        if not label.strip().isdigit() or not 0 < int(label) < 65536:
            raise InputError(f"expected --classes like 1=RV,2=Myo or 1,2, found {part!r}")
        names[int(label)] = name.strip() or label.strip()
    return names


def _as_csv(report: dict[str, Any]) -> str:
    from mona_infer.metrics import METRICS

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["case", "class", *METRICS, "miss", "definition", "unit", "spacing"])
    for case in report["cases"]:
        spacing = "x".join(f"{s:g}" for s in case["spacing"])
        for label, score in case["classes"].items():
            numbers = ["" if score[m] is None else f"{score[m]:.6f}" for m in METRICS]
            miss = int(score.get("miss", False))
            rows.writerow([case["case"], label, *numbers, miss, report["definition"], report["unit"], spacing])
    return text.getvalue()
