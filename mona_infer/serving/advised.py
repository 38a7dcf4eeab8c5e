"""The order that `mona label next` advises: a JSON file in the server's folder; without one, the order of before.

    {"format": "mona label next 1", "patients": [{"rank": 1, "patient": ..., "scans": [case, ...], "reason": ...}, ...]}

It is written after every training that was started here, and by `mona label next --serve`.
"""

from __future__ import annotations

from pathlib import Path

from mona_infer.serving.predictions import Candidate, Order
from mona_infer.serving.state import read_json

FILE, FORMAT = "label-next.json", "mona label next 1"


def advised_first(path: Path, otherwise: Order) -> Order:
    """Cases without a label that the file names come first, in its order; the others as `otherwise` has them."""

    def order(candidates: list[Candidate]) -> list[Candidate]:
        place, last = advised_scans(path), len(candidates)
        if not place:
            return otherwise(candidates)

        def rank(candidate: Candidate) -> tuple[bool, int]:
            return candidate.labelled != "none", place.get(candidate.case.name, last)

        return sorted(otherwise(candidates), key=rank)  # stable

    return order


def advised_scans(path: Path) -> dict[str, int]:
    """Case -> place in the order; empty where there is no such file, or one of another format."""
    found = read_json(path) or {}
    patients = found.get("patients")
    if found.get("format") != FORMAT or not isinstance(patients, list):
        return {}
    scans = [patient.get("scans") for patient in patients if isinstance(patient, dict)]
    names = [name for listed in scans if isinstance(listed, list) for name in listed if isinstance(name, str)]
    return {name: place for place, name in reversed(list(enumerate(names)))}
