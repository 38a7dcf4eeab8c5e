"""The pipeline for scans that come from a store, and masks that go to one.

A scan is fetched when the pipeline's reader asks for it, so one ahead of the network, and is gone from this disk when
its report is there.  A mask is published by the pipeline's writer, while the network is at the next scan.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from mona_infer.errors import MonaError
from mona_infer.io.remote import fetch
from mona_infer.io.remote.retry import interrupted
from mona_infer.models.file import Model
from mona_infer.segmenter import Segmenter
from mona_infer.segmenting import pipeline
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.outputs import Options
from mona_infer.segmenting.report import CaseReport


def run(
    jobs: list[Job], model: Model, options: Options, start: Callable[[], Segmenter], *, folder: bool, **words: Any
) -> Generator[pipeline.Case, None, None]:
    """As `pipeline.run`, for jobs of both kinds."""
    if not any(job.source or job.target for job in jobs):
        yield from pipeline.run(jobs, model, options, start, folder=folder, **words)
        return
    with TemporaryDirectory(prefix="mona-") as scratch:
        staged = _Staged(jobs, Path(scratch), folder)
        cases = pipeline.run(staged, model, options, start, folder=folder, **words)
        try:
            with _heeding_interrupts(), closing(cases):  # type: ignore[type-var]
                for report, rows in cases:
                    yield from ((failed, []) for failed in staged.failed_before(report.case))
                    yield staged.settled(report), rows
                yield from ((failed, []) for failed in staged.failed_before(None))
        except MonaError as error:  # of a single scan
            raise type(error)(staged.in_words_of_places(str(error))) from error


@contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """Ctrl-C also ends the waiting of the pipeline's threads for a store, which the pipeline itself waits for."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        before(number, frame)

    interrupted.clear()
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Staged(list[Job]):
    """A list whose scans arrive on this disk while it is gone through."""

    def __init__(self, jobs: list[Job], scratch: Path, folder: bool) -> None:
        super().__init__(jobs)
        self._scratch, self._folder = scratch, folder
        self._order = {job.name: n for n, job in enumerate(jobs)}
        self._here: dict[str, tuple[Job, Job]] = {}  # by case: the job as given, and as it is here
        self._failed: deque[tuple[int, CaseReport]] = deque()

    def __iter__(self) -> Iterator[Job]:
        for n, job in enumerate(list.__iter__(self)):
            place = self._scratch / str(n)
            try:
                here = job if not job.source else replace(job, scan=fetch(job.source, place))
            except Exception as error:
                if not self._folder or not isinstance(error, MonaError | OSError):
                    raise
                shutil.rmtree(place, ignore_errors=True)
                self._failed.append((n, CaseReport(job.name, job.source, error=" ".join(str(error).split()))))
                continue
            if job.target:
                here = replace(here, out=place / "mask" / job.out.name)
            self._here[job.name] = (job, here)
            yield here

    def failed_before(self, case: str | None) -> Iterator[CaseReport]:
        """Reports of scans that could not be fetched, in the order of the jobs."""
        until = len(self) if case is None else self._order[case]
        while self._failed and self._failed[0][0] < until:
            yield self._failed.popleft()[1]

    def settled(self, report: CaseReport) -> CaseReport:
        """The report in words of places, and its files here removed."""
        given, here = self._here.pop(report.case)
        shutil.rmtree(self._scratch / str(self._order[report.case]), ignore_errors=True)
        report.scan = given.source or report.scan
        report.mask = given.target or report.mask if report.error is None else report.mask
        if report.error is not None:
            report.error = _told(report.error, given, here)
        report.warnings = [_told(warning, given, here) for warning in report.warnings]
        return report

    def in_words_of_places(self, text: str) -> str:
        for given, here in self._here.values():
            text = _told(text, given, here)
        return text


def _told(text: str, given: Job, here: Job) -> str:
    if given.source:
        text = text.replace(str(here.scan), given.source)
    return text.replace(str(here.out), given.target) if given.target else text
