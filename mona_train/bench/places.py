"""Where rows run.  A place starts `mona train --resume RUN` as a process of its own; here, a child of the bench.

Children are in sessions of their own: Ctrl-C in the terminal reaches the bench alone, which asks each to stop once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

# A bench started with & or nohup hands down that SIGINT is ignored; its rows must still hear when they are to stop.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
MONA = (sys.executable, "-c", f"{HEARS}from mona_infer.cli.main import main; main()")
KILLED = -signal.SIGKILL


class Job(Protocol):
    """A process that trains."""

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs or waits to."""

    def stop(self) -> None:
        """Ask it to save and end."""

    def kill(self) -> None: ...


class Place(Protocol):
    def start(self, words: list[str], log: Path, threads: int) -> Job:
        """Start `mona WORDS`; what it says is appended to `log`."""


class Here:
    """Processes on this machine."""

    def start(self, words: list[str], log: Path, threads: int) -> Job:
        return Process(launch(words, log, threads))


class Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def launch(words: list[str], log: Path, threads: int, *, session: bool = True) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with log.open("ab") as output:
        return subprocess.Popen(
            [*MONA, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=session,
        )
