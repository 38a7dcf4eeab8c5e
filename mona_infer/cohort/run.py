"""A cohort through a cluster: tasks of about twenty scans, those of a lost one tried again one by one.

Dask counts a lost worker against every task that was on it (`allowed-failures`), so its counting is switched off, and
whatever was on a lost worker comes back here.  Its scans are then segmented one by one in a process that the worker
only watches (`alone`): a scan that ends that process is bad.  A careful task whose worker is lost all the same is
parted into single scans, and one that is lost LIVES times more (where what ends the child ends the worker too, as when
Slurm ends a job that takes too much memory) is bad as well.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from mona_infer.cohort import task
from mona_infer.cohort.cluster import check, connected, memory_of_worker, parse, slurm_option
from mona_infer.cohort.settings import Settings
from mona_infer.errors import CheckFailed
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport
from mona_infer.system.progress import waiting as waiting_bar

SCANS = 20  # of a task: Dask takes about a millisecond for one
WAITING = 2  # tasks for each worker, so that none waits for the driver
LIVES = 3
LOOK = 1.0  # seconds between looks for new workers
GIVE_UP = 15.0  # seconds that interrupted tasks have to end tidily


@dataclass
class _Task:
    jobs: list[Job]
    careful: bool = False
    lost: int = 0  # how often its worker was, while it held a single scan


class Cohort:
    """The cluster that a command was given, and the way of its scans through it."""

    def __init__(self, cluster: str, slurm: list[str], *, threads: int = 0, max_ram: int = 0) -> None:
        self.place, self.slurm = parse(cluster), dict(map(slurm_option, slurm))
        self.threads, self.max_ram = threads, max_ram
        check(self.place, self.slurm, max_ram=max_ram)

    def of_worker(self, made: dict[str, Any]) -> dict[str, Any]:
        """The options of a Segmenter as one worker gets them."""
        return made | {"max_ram": memory_of_worker(self.place, self.max_ram) if self.max_ram else 0}

    def run(
        self, jobs: list[Job], settings: Settings, describe: Callable[[str], None]
    ) -> Generator[CaseReport, None, None]:
        """A report for each scan, in the order in which tasks end."""
        with connected(self.place, self.slurm, threads=self.threads, max_ram=self.max_ram) as client:
            yield from _Driver(client, settings, describe, same_terminal=self.place.kind == "local").run(jobs)


class _Driver:
    def __init__(
        self, client: Any, settings: Settings, describe: Callable[[str], None], *, same_terminal: bool
    ) -> None:
        self.same_terminal = same_terminal
        self.client, self.settings, self.describe = client, settings, describe
        self.engine = ""
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._under_way: dict[Any, _Task] = {}  # by future
        self._count = 0

    def run(self, jobs: list[Job]) -> Iterator[CaseReport]:
        from mona_infer.cohort.plugin import Command

        self.client.wait_for_workers(1)
        command = Command(self.settings, same_terminal=self.same_terminal)
        self.client.register_plugin(command)
        size = max(1, min(SCANS, len(jobs) // (WAITING * 2 * self._workers())))
        waiting = deque(_Task(jobs[n : n + size]) for n in range(0, len(jobs), size))
        done = 0
        with waiting_bar("segmenting") as tell:
            try:
                while waiting or self._under_way:
                    room = max(1, WAITING * self._workers()) - len(self._under_way)
                    for _ in range(min(room, len(waiting))):
                        self._submit(waiting.popleft())
                    try:
                        future = self._ended.get(timeout=LOOK)
                    except queue.Empty:
                        continue
                    for report in self._answer(future, waiting):
                        done += 1
                        tell(done, len(jobs))
                        yield report
            finally:
                if self._under_way:
                    self._stop()
                with contextlib.suppress(Exception):
                    self.client.unregister_worker_plugin(command.name)

    def _workers(self) -> int:
        return len(self.client.nthreads())

    def _submit(self, item: _Task) -> None:
        self._count += 1
        key = f"mona-{self.settings.key}-{self._count}"
        future = self.client.submit(
            task.segment_jobs, self.settings.key, item.jobs, item.careful, key=key, pure=False, retries=0
        )
        self._under_way[future] = item
        future.add_done_callback(self._ended.put)

    def _answer(self, future: Any, waiting: deque[_Task]) -> list[CaseReport]:
        from distributed.scheduler import KilledWorker

        item = self._under_way.pop(future)
        if future.status == "finished":
            try:
                answer = future.result()
            except Exception:  # its worker was lost after it had finished
                return self._try_again(item, waiting)
            if answer.engine and not self.engine:
                self.engine = answer.engine
                self.describe(answer.engine)
            return list(answer.reports)
        if future.status != "error":
            raise CheckFailed("the Dask scheduler was lost; masks that are written stay, so repeat the command")
        error = future.exception()
        if isinstance(error, KilledWorker):
            return self._try_again(item, waiting)
        raise error

    def _try_again(self, item: _Task, waiting: deque[_Task]) -> list[CaseReport]:
        if not item.careful:
            waiting.append(_Task(item.jobs, careful=True))
        elif len(item.jobs) > 1:
            waiting.extend(_Task([job], careful=True) for job in item.jobs)
        elif item.lost + 1 < LIVES:
            waiting.append(_Task(item.jobs, careful=True, lost=item.lost + 1))
        else:
            (job,) = item.jobs
            reason = f"{job.scan}: every worker that segmented it, and nothing else, was lost ({LIVES + 1} times)"
            return [CaseReport(job.name, str(job.scan), error=reason)]
        return []

    def _stop(self) -> None:
        """Tasks under way end tidily; what they were writing is removed."""
        from distributed import wait

        with contextlib.suppress(Exception):  # a worker that is lost now, a scheduler that is gone: nothing to stop
            self.client.run(task.stop, self.settings.key, on_error="ignore")
            wait(list(self._under_way), timeout=GIVE_UP)
