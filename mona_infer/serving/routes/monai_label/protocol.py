"""What is remembered between a client's calls, and what several of them need."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from mona_infer.serving.dataset import Case
from mona_infer.serving.jobs import TRAIN, Job
from mona_infer.serving.routes.common import refuse, told
from mona_infer.serving.scans import Scan
from mona_infer.serving.site import Site
from mona_infer.task import LabelClass

SESSION = 3600.0  # seconds that a session's scan is kept
STRATEGIES = {
    "doubtful": "The scan that `mona label next` advises, else the most doubtful one without a label",
    "random": "Any scan without a label",
}
TRAINER = "mona"


@dataclass
class Protocol:
    """What is remembered between a client's calls."""

    site: Site
    handed_out: set[str] = field(default_factory=set)  # so that asking again gives another scan

    def find(self, image: str) -> Case | Scan:
        if self.site.dataset is not None:
            with told(self.site):
                case = self.site.dataset.cases().get(image)
            if case is not None:
                return case
        return self.site.scans.get(image) or refuse(404, "there is no such image on the server")

    def next(self, strategy: str) -> Case | None:
        if strategy not in STRATEGIES:
            refuse(404, f"unknown strategy; choose one of {', '.join(STRATEGIES)}")
        waiting = [candidate.case for candidate in self.site.ordered() if candidate.labelled == "none"]
        fresh = [case for case in waiting if case.name not in self.handed_out]
        if not fresh:
            self.handed_out.clear()
            fresh = waiting
        if not fresh:
            return None
        chosen = random.choice(fresh) if strategy == "random" else fresh[0]
        self.handed_out.add(chosen.name)
        return chosen

    def training(self) -> Job | None:
        return next((job for job in reversed(self.site.jobs.all()) if job.kind == TRAIN), None)


def of_session(site: Site, id: str) -> Scan:
    scan = site.scans.get(id)
    return scan if scan is not None and scan.expires is not None else refuse(404, "there is no such session")


def counts_of(site: Site) -> dict[str, Any]:
    if site.dataset is None:
        return {"total": len(list(site.scans)), "completed": 0}
    cases = site.dataset.cases().values()
    return {"total": len(cases), "completed": sum(case.label is not None for case in cases)}


def numbers_of(classes: tuple[LabelClass, ...]) -> dict[LabelClass, int]:
    """Ids as they are; where one does not fit a byte, which OHIF wants, the classes are numbered."""
    fits = all(c.id < 256 for c in classes)
    return {c: c.id if fits else n for n, c in enumerate(classes)}


def parsed(params: str) -> dict[str, Any]:
    try:
        found = json.loads(params or "{}")
    except (ValueError, RecursionError):
        refuse(422, "params: expected a JSON object")
    return found if isinstance(found, dict) else {}
