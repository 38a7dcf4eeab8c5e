"""The worker that segments: waiting jobs go through the pipeline of `mona segment` together, so the masks are the same.

While one scan is in the network, the next is read and the last is written; the engine stays loaded.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from mona_infer.errors import MonaError
from mona_infer.models.file import Model
from mona_infer.segmenting.jobs import Job as Work
from mona_infer.segmenting.outputs import Options
from mona_infer.segmenting.pipeline import run
from mona_infer.segmenting.report import CaseReport
from mona_infer.segmenting.scan_kind import TRAIN
from mona_infer.segmenting.warnings import FORCE
from mona_infer.serving.dataset import Case, Dataset
from mona_infer.serving.jobs import CANCELLED, DONE, FAILED, SEGMENT, WAITING, Cancelled, Job, Jobs
from mona_infer.serving.models import Models
from mona_infer.serving.names import without_paths
from mona_infer.serving.predictions import Predictions
from mona_infer.serving.scans import MASK, Scan, Scans

LANE = "segmenting"
TOGETHER = 16  # jobs through the pipeline at a time; a job that comes meanwhile waits for these
OPTIONS = Options(
    frame=None, every_frame=True, series=None, force=False, probabilities=None, details=True, pictures=False
)
log = logging.getLogger("mona.serve")


class SegmentingLane(threading.Thread):
    def __init__(
        self, jobs: Jobs, models: Models, scans: Scans, predictions: Predictions, dataset: Dataset | None
    ) -> None:
        super().__init__(name=LANE, daemon=True)
        self._jobs, self._models, self._scans = jobs, models, scans
        self._predictions, self._dataset = predictions, dataset
        self._places = {str(dataset.folder): "the data set"} if dataset is not None else {}
        self._places[str(scans.folder)] = "the server's folder"

    def run(self) -> None:
        while jobs := self._jobs.take(LANE, TOGETHER, self._kind):
            try:
                self._together(jobs)
            except Exception as error:  # the worker must outlive whatever a job does to it
                log_bug(error)
                for job in jobs:
                    self._jobs.end(job, FAILED, told(error, {}))

    def _kind(self, job: Job) -> tuple[str | None, bool]:
        """Jobs of a kind go through the pipeline together."""
        return job.about.get("model") or self._models.current, bool(job.about.get("force"))

    def _together(self, jobs: list[Job]) -> None:
        try:
            model = self._models.model(jobs[0].about.get("model"))
            segmenter = self._models.segmenter(model)
        except MonaError as error:
            for job in jobs:
                self._jobs.end(job, FAILED, told(error, {}))
            return
        options = replace(OPTIONS, force=bool(jobs[0].about.get("force")))
        works = {job.id: self._work(job, model) for job in jobs if job.state == WAITING}
        found = [(job, works[job.id]) for job in jobs if job.id in works]
        by_id = {job.id: job for job, work in found if work is not None}

        def progress(work: Work, part: float) -> None:
            if self._jobs.closing:
                raise Cancelled
            job = by_id[work.name]
            if job.state == WAITING:
                self._jobs.start(job, "segmenting")
            self._jobs.tell(job, part)

        ready = [work for _, work in found if work is not None]
        for report, _ in run(ready, model, options, lambda: segmenter, folder=True, progress=progress) if ready else ():
            job = by_id[report.case]
            if report.error is not None and job.about.get("reference") and not job.unwanted and not self._jobs.closing:
                report = self._without_reference(job, model, works[job.id])
            self._finish(job, report, model)

    def _work(self, job: Job, model: Model) -> Work | None:
        """What the pipeline is to do; None, and the job has ended, where that is no longer there."""
        if job.kind == SEGMENT:
            scan = self._scans.get(job.about["scan"])
            if scan is not None:
                return Work(job.id, self._scans.path(scan), self._scans.path(scan, MASK))
        else:
            case = self._case(job)
            if case is not None:
                job.about["reference"] = case.label is not None and not case.label.is_dir()
                place = self._predictions.place(case, model.seal)
                return Work(job.id, case.image, place, case.label if job.about["reference"] else None)
        self._jobs.end(job, FAILED, "the scan to be segmented is no longer there")
        return None

    def _case(self, job: Job) -> Case | None:
        return self._dataset.cases().get(job.about["case"]) if self._dataset is not None else None

    def _without_reference(self, job: Job, model: Model, work: Work | None) -> CaseReport:
        """A label that lies on another grid, or is damaged, must not keep its case from being segmented."""
        assert work is not None
        segmenter = self._models.segmenter(model)
        plain = Work(work.name, work.scan, work.out)
        options = replace(OPTIONS, force=bool(job.about.get("force")))
        (report, _) = next(iter(run([plain], model, options, lambda: segmenter, folder=True, progress=_ignore)))
        if report.error is None:
            report.warnings.append("its label could not be compared: is it damaged, or on another grid?")
        return report

    def _finish(self, job: Job, report: CaseReport, model: Model) -> None:
        if job.unwanted:
            self._jobs.end(job, CANCELLED, "cancelled")
            return
        if self._jobs.closing and report.error is not None:
            self._jobs.leave(job)
            return
        if job.state == WAITING and report.error is None:
            self._jobs.start(job, "segmenting")
        if job.kind == SEGMENT:
            self._finish_scan(job, report, model)
        else:
            self._finish_case(job, report, model)
        log.info("%s %s: %s in %.1f s", job.kind, job.id, job.state, time.time() - (job.started or job.created))

    def _finish_scan(self, job: Job, report: CaseReport, model: Model) -> None:
        scan = self._scans.get(job.about["scan"])
        if scan is None:  # deleted meanwhile: so is what was written after that
            self._scans.remove(Scan(job.about["scan"], "", "", [], [], 0.0))
            self._jobs.end(job, CANCELLED, "the scan was deleted")
            return
        called = self._scans.stands_for(self._scans.path(scan), scan.name) | self._places
        if report.error is not None:
            self._fail(job, report.error, called)
            return
        shown = shown_report(report, scan.name, called)
        scan.segmented = {"model": job.about.get("model") or self._models.current, "seal": model.seal, "report": shown}
        self._scans.update(scan)
        result = {"mask": f"/api/scans/{scan.id}/mask", "model": scan.segmented["model"], "dicom": scan.dicom, **shown}
        self._jobs.end(job, DONE, "done", result)

    def _finish_case(self, job: Job, report: CaseReport, model: Model) -> None:
        case = self._case(job)
        if case is None:
            self._jobs.end(job, FAILED, "the case is no longer there")
            return
        called = {str(case.image): case.name, str(case.label): f"the label of {case.name}"} | self._places
        if report.error is not None:
            self._fail(job, report.error, called)
            return
        shown = shown_report(report, case.name, called)
        self._predictions.keep(case, model.seal, shown)
        name = job.about.get("model") or self._models.current
        self._jobs.end(job, DONE, "done", {"model": name, **shown})

    def _fail(self, job: Job, sentence: str, called: dict[str, str]) -> None:
        """A refusal ends with options of the command, which are none of the page's."""
        plain = sentence.removesuffix(TRAIN).removesuffix(FORCE)
        job.refused = plain != sentence
        self._jobs.end(job, FAILED, without_paths(plain, called))


def _ignore(work: Work, part: float) -> None:
    """A second try at one case is not told of."""


def shown_report(report: CaseReport, name: str, called: dict[str, str]) -> dict[str, Any]:
    """A report without a path in it."""
    report.case, report.scan, report.mask = name, name, None
    report.warnings = [without_paths(warning, called) for warning in report.warnings]
    shown = report.to_json()
    return {key: value for key, value in shown.items() if key not in ("scan", "mask")}


def told(error: Exception, called: dict[str, str]) -> str:
    """What a client may read of an error: a sentence meant for users, or that there is a bug; never a traceback."""
    if isinstance(error, MonaError):
        return without_paths(str(error), called)
    if isinstance(error, MemoryError):
        return "there is not enough memory on the server for this scan"
    return "this failed on the server; its log says more"


def log_bug(error: Exception) -> None:
    """Where it happened, without the message: that may hold what a file's header says of a patient."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames[-8:]))
    log.error("a bug in mona: %s at %s", type(error).__name__, where)
