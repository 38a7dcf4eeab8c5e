"""What is to be done: jobs in the order they came, kept on disk, so that a restart of the server loses none.

There are two lanes with one worker each: segmenting takes seconds and need not wait for training, which takes hours.
A job is written before its client is answered.  One that was running when the server was killed is run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mona_infer.serving.state import ID, State, new_id, read_json, write_json

WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)
SEGMENT, SEGMENT_CASE, TRAIN = "segment", "segment-case", "train"
LANES = {SEGMENT: "segmenting", SEGMENT_CASE: "segmenting", TRAIN: "training"}
MOST_WAITING = 1000
MOST_KEPT = 2000  # jobs that have ended
ATTEMPTS = 3  # a job that was running each time the server died may be what killed it


class Cancelled(Exception):
    """Raised in the middle of a job that a client no longer wants."""


class QueueFull(Exception):
    """More jobs are waiting than anybody will wait for."""


def in_words(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC; with microseconds always, so that texts sort like times."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


@dataclass(eq=False)
class Job:
    id: str
    kind: str
    about: dict[str, Any]  # what to segment, with which model; how to train
    created: float
    state: str = WAITING
    progress: float = 0.0
    message: str = "waiting"
    started: float | None = None
    ended: float | None = None
    result: dict[str, Any] | None = None
    attempts: int = 0
    points: list[dict[str, Any]] = field(default_factory=list)  # a training's curve
    unwanted: bool = False  # a client has cancelled it
    refused: bool = False  # failed, but `force` would segment it
    version: int = 0  # counts changes: what a client that watches has seen

    def shown(self) -> dict[str, Any]:
        names = ("id", "kind", "state", "progress", "message", "result", "refused")
        times = {name: in_words(getattr(self, name)) for name in ("created", "started", "ended")}
        asked = {name: self.about.get(name) for name in ("scan", "case", "model", "name")}
        return {name: getattr(self, name) for name in names} | times | asked | {"curve": list(self.points)}

    def add(self, point: dict[str, Any]) -> None:
        """A point of the curve; what is measured at the same step belongs to the same point."""
        if self.points and self.points[-1]["step"] == point["step"]:
            known = {name: value for name, value in point.items() if value is not None}
            self.points[-1] = {**self.points[-1], **known}
        else:
            self.points.append(point)

    def check(self) -> None:
        if self.unwanted:
            raise Cancelled


class Jobs:
    def __init__(self, state: State) -> None:
        self._state = state
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._closing = False
        self.listeners: list[Callable[[Job], None]] = []  # called when a job has ended
        for path in sorted(state.jobs.glob("*.json")):
            found = read_json(path) if ID.fullmatch(path.stem) else None
            if found is not None and found.get("kind") in LANES:
                self._jobs[path.stem] = self._again(Job(**found))

    def _again(self, job: Job) -> Job:
        """A job as the last server left it; one that it was working on waits again, unless it was that too often."""
        if job.state != RUNNING:
            return job
        if job.unwanted:
            job.state, job.message, job.ended = CANCELLED, "cancelled", time.time()
        elif job.attempts >= ATTEMPTS:
            job.state, job.ended = FAILED, time.time()
            job.message = f"the server stopped {job.attempts} times while it worked on this; it is not tried again"
        else:
            job.state, job.progress, job.message = WAITING, 0.0, "waiting again: the server was restarted"
        self._keep(job)
        return job

    def submit(self, kind: str, about: dict[str, Any]) -> Job:
        with self._changed:
            if sum(job.state == WAITING for job in self._jobs.values()) >= MOST_WAITING:
                raise QueueFull
            job = Job(new_id(), kind, about, time.time())
            self._keep(job)
            self._jobs[job.id] = job
            self._forget_oldest()
            self._changed.notify_all()
            return job

    def get(self, id: str) -> Job | None:
        return self._jobs.get(id)

    def all(self) -> list[Job]:
        return sorted(self._jobs.values(), key=lambda job: job.created)

    def scans(self) -> set[str]:
        """The uploaded scans that jobs still need."""
        return {str(job.about.get("scan")) for job in list(self._jobs.values()) if job.state not in ENDED}

    def busy(self, lane: str) -> Job | None:
        return next((job for job in self.all() if job.state == RUNNING and LANES[job.kind] == lane), None)

    def take(self, lane: str, most: int, alike: Callable[[Job], Any]) -> list[Job]:
        """The oldest waiting jobs of a lane, as many in a row as are `alike`; waits for one, [] when closing."""
        with self._changed:
            while not self._closing:
                waiting = [job for job in self.all() if job.state == WAITING and LANES[job.kind] == lane]
                if waiting:
                    same = [job for job in waiting[:most] if alike(job) == alike(waiting[0])]
                    return same
                self._changed.wait()
            return []

    def start(self, job: Job, message: str) -> None:
        with self._changed:
            job.check()
            if job.state != RUNNING:
                job.state, job.started, job.attempts = RUNNING, time.time(), job.attempts + 1
            self._tell(job, message=message)
            self._keep(job)

    def tell(self, job: Job, progress: float, message: str | None = None, point: dict[str, Any] | None = None) -> None:
        """How far it is; raises Cancelled if nobody wants it any more.  Kept in memory alone."""
        job.check()
        with self._changed:
            if point is not None:
                job.add(point)
            self._tell(job, progress=max(0.0, min(1.0, progress)), message=message or job.message)

    def end(self, job: Job, state: str, message: str, result: dict[str, Any] | None = None) -> None:
        with self._changed:
            if job.state in ENDED:
                return
            job.state, job.ended, job.result = state, time.time(), result
            job.progress = 1.0 if state == DONE else job.progress
            self._tell(job, message=message)
            self._keep(job)
        for listener in self.listeners:
            listener(job)

    def leave(self, job: Job) -> None:
        """Stopped in the middle because the server is: the next one goes on, and this was no failed attempt."""
        with self._changed:
            job.state, job.attempts = WAITING, max(0, job.attempts - 1)
            self._keep(job)

    def cancel(self, job: Job) -> None:
        """A waiting job ends at once; a running one as soon as its worker notices."""
        with self._changed:
            if job.state in ENDED:
                return
            job.unwanted = True
            self._keep(job)
        if job.state == WAITING:
            self.end(job, CANCELLED, "cancelled")

    def wait(self, job: Job, seconds: float) -> bool:
        """Whether it has ended, after that long at most."""
        with self._changed:
            return self._changed.wait_for(lambda: job.state in ENDED or self._closing, seconds) and job.state in ENDED

    def close(self) -> None:
        """No more work: waiting jobs stay waiting, for the next server."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    @property
    def closing(self) -> bool:
        return self._closing

    def _tell(self, job: Job, **values: Any) -> None:
        for name, value in values.items():
            setattr(job, name, value)
        job.version += 1
        self._changed.notify_all()

    def _keep(self, job: Job) -> None:
        kept = {name: value for name, value in vars(job).items() if name != "version"}
        write_json(self._state.jobs / f"{job.id}.json", kept)

    def _forget_oldest(self) -> None:
        ended = [job for job in self.all() if job.state in ENDED]
        for job in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._jobs[job.id]
            (self._state.jobs / f"{job.id}.json").unlink(missing_ok=True)
