"""How every worker of a cluster, also one that comes later, hears of a command and of its end."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from mona_infer.cohort import task
from mona_infer.cohort.settings import Settings


class Command(WorkerPlugin):  # type: ignore[misc]
    def __init__(self, settings: Settings) -> None:
        self.name = f"mona-{settings.key}"
        self.settings = settings

    def setup(self, worker: Any) -> None:
        task.arrive(self.settings, worker.state.nthreads)

    def teardown(self, worker: Any) -> None:
        task.leave(self.settings.key)
