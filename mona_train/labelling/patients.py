"""Who has labels and who could get some, by patient: all scans of a patient are labelled together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mona_infer.errors import InputError
from mona_train.data.case import Case
from mona_train.data.resolved import Resolved
from mona_train.data.split import PUBLISHED


@dataclass(frozen=True)
class Patients:
    labelled: dict[str, list[Case]]  # those that a network may learn from, as the data is now
    candidates: dict[str, list[Case]]
    hidden: bool  # every patient has a label: the candidates are those whose labels the run did not use


def sort_out(cases: list[Case], resolved: Resolved) -> Patients:
    """A patient with any label, or with a scan to validate or test on, is no candidate."""
    split, held = resolved.split, {*resolved.split.val, *resolved.split.test}
    grouped = defaultdict[str, list[Case]](list)
    for case in cases:
        grouped[case.patient].append(case)
    training = {
        patient: scans
        for patient, scans in sorted(grouped.items())
        if not any(case.name in held or case.part in ("val", "test") for case in scans)
    }
    if resolved.adapter in PUBLISHED:  # `mona train` uses the patients of the published lists and no others
        listed = {*split.labelled_patients, *split.unlabelled_patients}
        training = {patient: scans for patient, scans in training.items() if patient in listed}
    without = {patient: scans for patient, scans in training.items() if not any(case.label for case in scans)}
    if without:
        labelled = {patient: scans for patient, scans in training.items() if patient not in without}
        return _checked(Patients(labelled, without, hidden=False), resolved)
    used, unused = set(split.labelled_patients), set(split.unlabelled_patients)
    known = {patient: scans for patient, scans in training.items() if patient in used}
    others = {patient: scans for patient, scans in training.items() if patient in unused - used}
    return _checked(Patients(known, others, hidden=True), resolved)


def _checked(found: Patients, resolved: Resolved) -> Patients:
    if not found.candidates:
        raise InputError(f"every training patient of {resolved.dataset} has a label: there is nothing to label next")
    if not found.labelled:
        raise InputError(
            f"no training patient of {resolved.dataset} has a label now, though the run learned from "
            f"{len(resolved.split.labelled_patients)}; put the labels back, or label any patient first"
        )
    return found
