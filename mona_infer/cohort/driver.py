"""Items through the workers of a cluster, in tasks; those of a lost worker are tried again, none is blamed for another.

Dask counts a lost worker against every task that was on it (`allowed-failures`), so its counting is switched off, and
whatever was on a lost worker comes back here.  Its items are then tried again by a careful task, which may tell which
item is the reason.  A careful task whose worker is lost all the same is parted into single items, and an item that is
lost LIVES times more is bad: nothing else was there to blame.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import typer

from mona_infer.cohort.cluster import Workers
from mona_infer.errors import CheckFailed
from mona_infer.system.progress import waiting as waiting_bar

SCANS = 20  # of a task: Dask takes about a millisecond for one
WAITING = 2  # tasks for each worker, so that none waits for the driver
LIVES = 3
LOOK = 1.0  # seconds between looks for new workers
ANSWER = 120.0  # seconds in which the answer of a task that has ended must be here
GIVE_UP = 15.0  # seconds that interrupted tasks have to end tidily

Item = TypeVar("Item")
Result = TypeVar("Result")


class Work(Protocol[Item, Result]):
    """What is done with items; each call of `task` may run on a worker that has never heard of the others."""

    doing: str  # as the progress bar says it
    name: str

    def task(self, items: list[Item], careful: bool) -> tuple[Any, ...]:
        """A function and its arguments, for a worker."""

    def results(self, answer: Any) -> list[Result]:
        """One for each item of a task, from what the function has returned."""

    def bad(self, item: Item) -> Result:
        """The result of an item that every worker was lost with."""

    def begin(self, client: Any) -> None: ...

    def stop(self, client: Any) -> None:
        """Tasks under way are to end now, and tidily."""

    def end(self, client: Any) -> None: ...


@dataclass
class _Task(Generic[Item]):
    items: list[Item]
    careful: bool = False
    lost: int = 0  # how often its worker was, while it held a single item


class Driver(Generic[Item, Result]):
    """Yields results in the order in which tasks end."""

    def __init__(self, workers: Workers, work: Work[Item, Result]) -> None:
        self._workers, self._client, self._work = workers, workers.client, work
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._under_way: dict[Any, _Task[Item]] = {}  # by future
        self._count = 0

    def run(self, items: list[Item]) -> Generator[Result, None, None]:
        if not self._workers.count():
            typer.echo("waiting for the first worker of the cluster", err=True)
        self._client.wait_for_workers(1)
        size = max(1, min(SCANS, len(items) // (2 * WAITING * self._workers.count())))
        waiting = deque(_Task(items[n : n + size]) for n in range(0, len(items), size))
        done = 0
        with waiting_bar(self._work.doing, "scans") as tell:
            try:
                self._work.begin(self._client)
                while waiting or self._under_way:
                    self._workers.replace_lost()
                    room = max(1, WAITING * self._workers.count()) - len(self._under_way)
                    for _ in range(min(room, len(waiting))):
                        self._submit(waiting.popleft())
                    try:
                        future = self._ended.get(timeout=LOOK)
                    except queue.Empty:
                        continue
                    for result in self._answer(future, waiting):
                        done += 1
                        tell(done, len(items))
                        yield result
            finally:
                # a worker that is lost now, or a scheduler that is gone, has nothing to stop
                with contextlib.suppress(Exception):
                    if self._under_way:
                        self._stop()
                    self._work.end(self._client)

    def _submit(self, item: _Task[Item]) -> None:
        self._count += 1
        function, *arguments = self._work.task(item.items, item.careful)
        key = f"{self._work.name}-{self._count}"
        future = self._client.submit(function, *arguments, key=key, pure=False, retries=0)
        self._under_way[future] = item
        future.add_done_callback(self._ended.put)

    def _answer(self, future: Any, waiting: deque[_Task[Item]]) -> list[Result]:
        from distributed.scheduler import KilledWorker

        item = self._under_way.pop(future)
        if future.status not in ("finished", "error"):
            raise CheckFailed("the Dask scheduler was lost; what is written stays, so repeat the command")
        try:
            return self._work.results(future.result(timeout=ANSWER))
        except (KilledWorker, TimeoutError):  # the latter if its worker was lost between its end and its answer
            return self._try_again(item, waiting)

    def _try_again(self, item: _Task[Item], waiting: deque[_Task[Item]]) -> list[Result]:
        if not item.careful:
            waiting.append(_Task(item.items, careful=True))
        elif len(item.items) > 1:
            waiting.extend(_Task([one], careful=True) for one in item.items)
        elif item.lost + 1 < LIVES:
            waiting.append(_Task(item.items, careful=True, lost=item.lost + 1))
        else:
            return [self._work.bad(item.items[0])]
        return []

    def _stop(self) -> None:
        from distributed import wait

        self._work.stop(self._client)
        wait(list(self._under_way), timeout=GIVE_UP)
