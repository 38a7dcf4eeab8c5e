"""`--cluster local:4 | tcp://host:port | slurm:16`: the workers of a cohort, as a Dask client."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mona_infer.errors import InputError
from mona_infer.system.memory_budget import memory_budget, size_in_words
from mona_kernels.native import cores

KINDS = "local, local:N, slurm, slurm:N or the address of a Dask scheduler, tcp://host:8786"
PATIENCE = "30s"  # for a scheduler to answer
BETWEEN_LOOKS = 3.0  # seconds, for workers that are not there
LEAST = 500_000_000  # bytes that a worker needs: runtime, model and a small scan
CONFIG = {
    # A lost worker's tasks come back to the driver at once, which knows better than to blame them.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": PATIENCE,
}
MEMORY = {
    # Dask may only end a worker that takes too much.  It would otherwise pause one whose engine keeps its memory, for
    # good; there are no results of Dask's own to move to the disk.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
}


@dataclass(frozen=True)
class Place:
    """What --cluster names."""

    kind: str  # local, slurm or address
    workers: int = 0
    address: str = ""

    def __str__(self) -> str:
        return self.address or f"{self.kind}:{self.workers}"


def parse(text: str) -> Place:
    if re.fullmatch(r"(tcp|tls|ws|wss)://\S+:\d+", text):
        return Place("address", address=text)
    match = re.fullmatch(r"(local|slurm)(?::([1-9]\d*))?", text)
    if match is None:
        raise InputError(f"unknown --cluster {text!r}; give {KINDS}")
    return Place(match[1], int(match[2] or (cores() if match[1] == "local" else 1)))


def check(place: Place, slurm: dict[str, Any], *, max_ram: int = 0) -> None:
    """Whether it can be started, before anything is."""
    import distributed  # noqa: F401  missing: exit code 3 with the command that installs it

    if slurm and place.kind != "slurm":
        raise InputError(f"--slurm sets what jobs of --cluster slurm ask for, but --cluster is {place}")
    if place.kind == "slurm":
        import dask_jobqueue  # noqa: F401

        if shutil.which("sbatch") is None:
            raise InputError("sbatch was not found; start --cluster slurm on a login node of a Slurm cluster")
    if place.kind == "local" and 0 < max_ram < LEAST * place.workers:
        raise InputError(
            f"--max-ram {size_in_words(max_ram)} is divided among {place.workers} workers, and each needs at least "
            f"{size_in_words(LEAST)}; use fewer workers"
        )


def memory_of_worker(place: Place, max_ram: int) -> int:
    """Bytes that a worker may hold: a local one its share, any other all that was given; 0: not known here."""
    if place.kind == "local":
        return (max_ram or memory_budget()) // place.workers
    return max_ram


@dataclass
class Workers:
    """A client, and the care for its cluster if it was started here."""

    client: Any
    cluster: Any = None
    wanted: int = 0
    _looked: float = 0.0
    _dead: frozenset[str] = frozenset()

    def count(self) -> int:
        return len(self.client.nthreads())

    def replace_lost(self) -> None:
        """Dask starts a lost worker again, but not one that is lost while it starts, nor a job that Slurm has ended."""
        now = time.monotonic()
        if self.cluster is None or now - self._looked < BETWEEN_LOOKS:
            return
        self._looked = now
        if self.count() >= self.wanted:
            self._dead = frozenset()
            return
        held = {str(name): worker for name, worker in dict(self.cluster.workers).items()}
        # a job of Slurm cannot be asked; Dask forgets it some seconds after its worker, and scale() then starts another
        dead = frozenset(name for name, worker in held.items() if hasattr(worker, "is_alive") and not worker.is_alive())
        target = self.wanted + len(dead & self._dead)  # twice in a row: not just between its end and its new start
        self._dead = dead
        self.cluster.scale(max(target, len(self.cluster.worker_spec)))


@contextmanager
def connected(place: Place, slurm: dict[str, Any], *, threads: int = 0, max_ram: int = 0) -> Iterator[Workers]:
    """The workers of a cluster; a cluster that was started here ends here."""
    import dask
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost worker is no news, the driver tells
    with dask.config.set(CONFIG | MEMORY):
        if place.kind == "address":
            try:
                client = Client(place.address, timeout=PATIENCE, set_as_default=False)
            except (OSError, ValueError) as error:
                raise InputError(f"there is no Dask scheduler at {place.address}: {_first_line(error)}") from error
            with client:
                yield Workers(client)
            return
        memory = memory_of_worker(place, max_ram)
        with _cluster(place, slurm, threads, memory) as cluster, Client(cluster, set_as_default=False) as client:
            yield Workers(client, cluster, place.workers)


def _cluster(place: Place, slurm: dict[str, Any], threads: int, memory: int) -> Any:
    if place.kind == "slurm":
        return slurm_cluster(place.workers, slurm, threads, memory)
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=place.workers,
        threads_per_worker=threads or max(1, cores() // place.workers),
        processes=True,  # a worker that dies takes nobody along
        memory_limit=memory,
        dashboard_address=None,
        host="127.0.0.1",
        silence_logs=logging.CRITICAL,
    )


def slurm_cluster(workers: int, options: dict[str, Any], threads: int, memory: int) -> Any:
    """Jobs of Slurm with a worker each.  `options` are dask-jobqueue's, e.g. queue=gpu, walltime=02:00:00."""
    from dask_jobqueue import SLURMCluster

    asked: dict[str, Any] = {"job_name": "mona", "walltime": "04:00:00", "processes": 1} | options
    asked.setdefault("cores", threads or 4)
    if not isinstance(asked["cores"], int) or asked["cores"] < 1:
        raise InputError(f"--slurm: cores must be a number, 1 or greater; found {asked['cores']!r}")
    asked.setdefault("memory", f"{memory}B" if memory else "8GB")
    # Jobs do not inherit this process's settings of Dask, but do take them from the environment.
    variables = {f"DASK_{key.upper().replace('.', '__').replace('-', '_')}": value for key, value in MEMORY.items()}
    asked.setdefault("job_script_prologue", [f"export {name}={value}" for name, value in variables.items()])
    asked.setdefault("scheduler_options", {"dashboard_address": "localhost:0"})
    try:
        cluster = SLURMCluster(**asked)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"--slurm: {_first_line(error)}") from error
    cluster.scale(workers)
    return cluster


def slurm_option(text: str) -> tuple[str, Any]:
    """KEY=VALUE of --slurm; whole numbers are numbers."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise InputError(f"expected --slurm KEY=VALUE, e.g. --slurm queue=gpu, found {text!r}")
    return key, int(value) if value.isdigit() else value


def _first_line(error: Exception) -> str:
    return " ".join((str(error).splitlines() or [type(error).__name__])[0][:300].split())
