"""A bench as it goes on: a line for every row that starts or ends, and on a terminal a bar for each that runs."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from mona_train.bench.results import Line
from mona_train.bench.task import DONE, FAILED, RUNNING, Task
from mona_train.run.display import span


class Show:
    """passes: by the name of a run's folder, what a row is worth beside the others."""

    def __init__(self, total: int, passes: dict[str, float]) -> None:
        self._total, self._passes = total, passes
        self._ended = 0
        self._console = Console(stderr=True, highlight=False)
        self._begin: tuple[float, float] | None = None  # time, and passes done before it
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
        self._bars: Progress | None = None
        if sys.stderr.isatty() and not self._console.is_dumb_terminal:
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._all = self._bars.add_task("rows", total=total, note="")
        self._of: dict[str, TaskID] = {}

    def __enter__(self) -> Show:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        if self._bars is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def started(self, task: Task) -> None:
        begun = task.step()
        self.say(f"started: {task.name}" + f", at step {begun} of {task.steps}" * bool(begun))

    def finished(self, task: Task, line: Line) -> None:
        self._ended += 1
        measured = (line["scores"].get("validation") or {}).get(line["chosen"]) or line["scores"].get("test") or {}
        score = f": DSC {measured['dsc']:.3f}" if measured.get("dsc") is not None else ""
        took = f" in {span(line['seconds'])}" if line["seconds"] else ""
        self.say(f"finished {self._ended} of {self._total}: {task.name}{score}{took}")

    def failed(self, task: Task, why: str) -> None:
        self.say(f"failed: {task.name}: {why}")

    def update(self, tasks: list[Task]) -> None:
        if self._bars is None:
            return
        self._bars.update(self._all, completed=self._ended, note=self._eta(tasks))
        for task in tasks:
            key = str(task.run)
            if task.state == RUNNING:
                if key not in self._of:
                    self._of[key] = self._bars.add_task(f"  {task.name}", total=task.steps, note="")
                self._bars.update(self._of[key], completed=task.step())
            elif key in self._of:
                self._bars.remove_task(self._of.pop(key))

    def _eta(self, tasks: list[Task]) -> str:
        """By the pace of this bench."""
        rows = [task for task in tasks if task.planned is not None and task.state != FAILED]
        worth = [self._passes.get(task.run.name, 1.0) for task in rows]
        parts = [1.0 if task.state == DONE else task.step() / task.steps for task in rows]
        whole, done = sum(worth), sum(w * part for w, part in zip(worth, parts, strict=True))
        now = time.monotonic()
        self._begin = self._begin or (now, done)
        passed, gained = now - self._begin[0], done - self._begin[1]
        return f"ETA {span((whole - done) * passed / gained)}" if gained > 0 else ""
