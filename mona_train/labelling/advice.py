"""What to label next, from a run and the data as it is now; and its JSON, which `mona serve` reads."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.serving.advised import FORMAT
from mona_infer.system.progress import progress
from mona_train.data.case import Adapter, Case
from mona_train.labelling.choose import Pick, choose
from mona_train.labelling.embeddings import Seen, Viewer, unit
from mona_train.labelling.patients import Patients, sort_out
from mona_train.labelling.reasons import Reasons
from mona_train.labelling.runs import check_run
from mona_train.run.load import load_run


@dataclass(frozen=True)
class Advised:
    rank: int  # from 1
    patient: str
    scans: tuple[str, ...]
    uncertainty: float  # mean entropy where organs may be: 0 certain, 1 a guess
    distance: float  # to the nearest labelled patient, from 0 to 2
    nearest: str  # that patient
    others: (
        int  # patients without a label that are more like this one than like any with a label, or earlier in the list
    )
    reason: str


@dataclass(frozen=True)
class Advice:
    run: str
    step: int
    labelled: int  # patients
    candidates: int
    hidden: bool  # every patient has a label: those that the run did not use stand in for patients without
    patients: tuple[Advised, ...]  # the one to label first is the first

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def advise(run: Path, adapter: Adapter, folder: Path, count: int) -> Advice:
    trained = load_run(run)
    resolved, cases = trained.require_data(), adapter.cases(folder)
    check_run(run, resolved, adapter, folder, cases)
    patients = sort_out(cases, resolved)
    viewer = Viewer(trained)
    everyone = [case for scans in (*patients.labelled.values(), *patients.candidates.values()) for case in scans]
    seen = {case.name: viewer.see(case.image()) for case in progress(everyone, len(everyone), "looking at scans")}
    chosen = _choose(patients, seen, [c.name for c in trained.task.classes[1:]], count)
    numbers = len(patients.labelled), len(patients.candidates)
    return Advice(run.name, trained.step, *numbers, patients.hidden, chosen)


def _choose(patients: Patients, seen: dict[str, Seen], organs: list[str], count: int) -> tuple[Advised, ...]:
    known, names = list(patients.labelled), list(patients.candidates)
    candidates = np.stack([_point(scans, seen) for scans in patients.candidates.values()])
    labelled = np.stack([_point(scans, seen) for scans in patients.labelled.values()])
    doubts = [[seen[case.name].uncertainty for case in scans] for scans in patients.candidates.values()]
    uncertain = np.array([np.mean([doubt.overall for doubt in own]) for own in doubts])
    picks = choose(candidates, labelled, uncertain)
    reasons = Reasons(organs, [one.uncertainty for one in seen.values()], [pick.distance for pick in picks])

    def advised(rank: int, pick: Pick) -> Advised:
        name, nearest = names[pick.index], known[pick.nearest]
        above = names[pick.above] if pick.above is not None else None
        reason = reasons.of(doubts[pick.index], pick.distance, nearest, pick.others, above)
        scans = tuple(case.name for case in patients.candidates[name])
        numbers = round(float(uncertain[pick.index]), 4), round(pick.distance, 4)
        return Advised(rank, name, scans, *numbers, nearest, pick.others, reason)

    return tuple(advised(rank, pick) for rank, pick in enumerate(picks[:count], start=1))


def _point(scans: list[Case], seen: dict[str, Seen]) -> NDArray[np.float64]:
    return unit([seen[case.name].embedding for case in scans])
