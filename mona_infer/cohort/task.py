"""What a worker does: about twenty scans through one engine.  Masks are files; only reports go back.

A worker that is lost has therefore lost nothing but time: whoever gets its scans next skips those with a mask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from mona_infer.cohort.kept import of_mask
from mona_infer.cohort.remote import has_mask
from mona_infer.cohort.settings import Settings
from mona_infer.cohort.staged import run
from mona_infer.segmenter import Segmenter
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport

_one_at_a_time = threading.Lock()  # a worker with several threads gives them all to one engine
_commands: dict[str, _Command] = {}  # that this worker serves
_stopped: set[str] = set()  # and those that were interrupted


class Stopped(Exception):
    """The command was interrupted."""


@dataclass(frozen=True)
class Done:
    """What a task answers."""

    reports: list[CaseReport]
    engine: str = ""  # its description, once there is one


@dataclass
class _Command:
    settings: Settings
    threads: int  # of the worker
    memory: int  # bytes that it may hold; 0: no limit
    made: Segmenter | None = None

    def segmenter(self) -> Segmenter:
        """Made once, when the first scan is read."""
        if self.made is None:
            self.made = self.settings.segmenter(self.threads)
        return self.made


def arrive(settings: Settings, threads: int, memory: int) -> None:
    """A worker hears of a command."""
    _commands[settings.key] = _Command(settings, threads, memory)


def leave(key: str) -> None:
    """A command has ended: its engine is let go of."""
    _commands.pop(key, None)


def stop(key: str) -> None:
    """A command was interrupted: scans that are being segmented are given up, and leave nothing."""
    _stopped.add(key)


def segment_jobs(key: str, jobs: list[Job], careful: bool) -> Done:
    """A task.  `careful`: its scans were in a worker that was lost, and one of them may be the reason."""
    with _one_at_a_time:
        if key in _stopped:
            raise Stopped
        command = _commands[key]
        command.settings.check_version()
        if careful:
            from mona_infer.cohort.alone import each_alone

            alone = each_alone(command.settings, jobs, command.threads, lambda: key in _stopped, command.memory)
            return Done(list(alone))
        reports = list(in_order(command.settings, jobs, command.segmenter, lambda: key in _stopped, fresh=True))
        return Done(reports, command.made.engine.description if command.made else "")


def in_order(
    settings: Settings,
    jobs: list[Job],
    start: Callable[[], Segmenter],
    stopped: Callable[[], bool],
    *,
    fresh: bool = False,
) -> Iterator[CaseReport]:
    """Reports of the scans that have a mask already, then of the others.

    `fresh`: no worker had these jobs before, so a store need not be asked again what its listing has told.
    """

    def progress(job: Job, part: float) -> None:
        if stopped():
            raise Stopped

    there = {job.name for job in jobs if not (settings.overwrite or (fresh and job.target)) and has_mask(job)}
    yield from (of_mask(job, settings.model.task.classes[1:]) for job in jobs if job.name in there)
    todo = [job for job in jobs if job.name not in there]
    if not todo:
        return
    max_ram = settings.made.get("max_ram", 0)
    cases = run(todo, settings.model, settings.options, start, folder=True, max_ram=max_ram, progress=progress)
    with closing(cases):
        for report, _ in cases:
            if stopped():
                raise Stopped
            yield report
