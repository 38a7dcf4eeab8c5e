"""How every worker of a cluster, also one that comes later, hears of a command and of its end."""

from __future__ import annotations

import signal
from typing import Any

from distributed import WorkerPlugin

from mona_infer.cohort import task
from mona_infer.cohort.settings import Settings


class Command(WorkerPlugin):  # type: ignore[misc]
    def __init__(self, settings: Settings, *, same_terminal: bool) -> None:
        self.name = f"mona-{settings.key}"
        self.settings, self.same_terminal = settings, same_terminal

    def setup(self, worker: Any) -> None:
        if self.same_terminal:  # Ctrl-C is for the command, which then stops its workers tidily
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        task.arrive(self.settings, worker.state.nthreads, worker.memory_manager.memory_limit or 0)

    def teardown(self, worker: Any) -> None:
        task.leave(self.settings.key)
