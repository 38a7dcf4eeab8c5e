"""Starts rows, so many side by side, resumes what was killed, and writes down what has finished.

Nothing it knows is lost with it: what is done is in the folders of the runs, and in results.jsonl.  A row whose process
goes on after its bench was killed is left alone and collected when it ends.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

from mona_infer.errors import MonaError
from mona_train.bench.line import line_of
from mona_train.bench.places import Job, Place
from mona_train.bench.plan import Plan
from mona_train.bench.results import Results
from mona_train.bench.show import Show
from mona_train.bench.task import DONE, FAILED, RUNNING, WAITING, Task, tasks_of
from mona_train.run.lock import TRAINING, is_held

PAUSE = 0.2  # seconds between two looks
OFTEN = 3  # times that a process may be killed in a row without a new checkpoint
GRACE = 120.0  # seconds to save in after Ctrl-C


class Elsewhere:
    """A process that is not ours: its bench was killed, or somebody resumed the run by hand."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def poll(self) -> int | None:
        return None if is_held(self._task.run) else 0

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Runner:
    def __init__(self, plan: Plan, results: Results, place: Place, *, jobs: int, threads: int, show: Show) -> None:
        self._plan, self._results, self._place = plan, results, place
        self._jobs, self._threads, self._show = jobs, threads, show
        self.tasks = tasks_of(plan)

    def run(self) -> list[Task]:
        """All of them; returns those that failed."""
        try:
            with _terminated(), self._show:
                while self._left():
                    for task in [t for t in self.tasks if t.state == RUNNING]:
                        self._look(task)
                    self._start_more()
                    self._show.update(self.tasks)
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            self._stop()
            raise
        return [task for task in self.tasks if task.state == FAILED]

    def _left(self) -> bool:
        return any(task.state in (WAITING, RUNNING) for task in self.tasks)

    def _start_more(self) -> None:
        for task in self.tasks:
            if task.state != WAITING:
                continue
            if task.after is not None and task.after.state == FAILED:
                self._fail(task, "its pre-training failed")
            elif task.ready() and sum(t.state == RUNNING for t in self.tasks) < self._jobs:
                self._start(task)

    def _start(self, task: Task) -> None:
        if is_held(task.run):
            self._show.say(f"waiting for another process that trains {task.run}")
            task.job, task.state = Elsewhere(task), RUNNING
        elif task.is_done():  # it ended, but its bench was killed before it could write that down
            self._collect(task)
        else:
            task.prepare()
            task.reached, task.state = task.checkpoint(), RUNNING
            task.job = self._place.start(task.words, task.log, task.threads(self._threads))
            self._show.started(task)

    def _look(self, task: Task) -> None:
        job: Job | None = task.job
        assert job is not None
        code = job.poll()
        if code is None:
            return
        task.job, task.state = None, WAITING
        if isinstance(job, Elsewhere):
            return
        if task.is_done():
            self._collect(task)
        elif code < 0 or code in (130, 137, 143):  # by a signal: it is resumed from its checkpoint
            task.kills = 0 if task.checkpoint() != task.reached else task.kills + 1
            if task.kills >= OFTEN:
                self._fail(task, f"it was killed {OFTEN} times in a row (too little memory?)")
            else:
                self._show.say(f"killed, and resumed: {task.name}")
        elif f"another process is {TRAINING}" not in task.last_words():
            self._fail(task, task.last_words() if code else "it ended without results")

    def _collect(self, task: Task) -> None:
        if task.planned is None:
            task.state = DONE
            return
        try:
            line = line_of(task.run, self._plan.table)
        except MonaError as error:
            self._fail(task, str(error))
            return
        if line["row"] != task.planned.key:
            self._fail(task, f"code, settings or data changed while {task.run} was trained")
            return
        self._results.append(line)
        task.state = DONE
        self._show.finished(task, line)

    def _fail(self, task: Task, why: str) -> None:
        task.state = FAILED
        self._show.failed(task, why)

    def _stop(self) -> None:
        """Ask every process once to save and end, and wait; a second Ctrl-C ends them at once."""
        running = [task.job for task in self.tasks if task.state == RUNNING and task.job is not None]
        ours = [job for job in running if not isinstance(job, Elsewhere)]
        if ours:
            self._show.say(f"stopping {len(ours)} row{'s' * (len(ours) > 1)}; Ctrl-C again does not wait for them")
        for job in ours:
            job.stop()
        try:
            end = time.monotonic() + GRACE
            while any(job.poll() is None for job in ours) and time.monotonic() < end:
                time.sleep(PAUSE)
        finally:
            for job in ours:
                if job.poll() is None:
                    job.kill()


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM, which batch systems send, is Ctrl-C here."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def take_over(plan: Plan, results: Results) -> int:
    """Rows that were measured already as rows of another table get a line in this one; returns how many."""
    count = 0
    for planned in plan.to_do:
        line = results.elsewhere(planned.key)
        if line is not None:
            results.append({**line, "table": plan.table})
            count += 1
    return count
