"""Scans through a cluster.  Those of a lost worker are segmented one by one in a process that a worker only watches
(`alone`): a scan that ends that process is bad, and a worker that is lost says nothing about its scans.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from mona_infer.cohort.cluster import check, connected, memory_of_worker, parse, slurm_option
from mona_infer.cohort.driver import LIVES, Driver
from mona_infer.cohort.settings import Settings
from mona_infer.cohort.task import Done, segment_jobs, stop
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport


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
        if self.place.kind == "address":  # workers that were started somewhere else, in another folder
            jobs, settings = [_absolute(job) for job in jobs], settings.absolute()
        work = _Segmenting(settings, describe, same_terminal=self.place.kind == "local")
        with connected(self.place, self.slurm, threads=self.threads, max_ram=self.max_ram) as workers:
            yield from Driver(workers, work).run(jobs)


def _absolute(job: Job) -> Job:
    names = ["reference", "page", "record", *["scan"] * (not job.source), *["out"] * (not job.target)]  # no store's
    paths = {name: getattr(job, name) for name in names}
    return replace(job, **{name: path.absolute() for name, path in paths.items() if path is not None})


class _Segmenting:
    doing = "segmenting"

    def __init__(self, settings: Settings, describe: Callable[[str], None], *, same_terminal: bool) -> None:
        self._settings, self._describe, self._same_terminal = settings, describe, same_terminal
        self._engine = ""
        self.name = f"mona-{settings.key}"

    def task(self, items: list[Job], careful: bool) -> tuple[Any, ...]:
        return segment_jobs, self._settings.key, items, careful

    def results(self, answer: Done) -> list[CaseReport]:
        if answer.engine and not self._engine:
            self._engine = answer.engine
            self._describe(answer.engine)
        return answer.reports

    def bad(self, item: Job) -> CaseReport:
        place = item.source or str(item.scan)
        reason = f"{place}: every worker that segmented it, and nothing else, was lost ({LIVES + 1} times)"
        return CaseReport(item.name, place, error=reason)

    def begin(self, client: Any) -> None:
        from mona_infer.cohort.plugin import Command

        client.register_plugin(Command(self._settings, same_terminal=self._same_terminal))

    def stop(self, client: Any) -> None:
        client.run(stop, self._settings.key, on_error="ignore")

    def end(self, client: Any) -> None:
        client.unregister_worker_plugin(self.name)
