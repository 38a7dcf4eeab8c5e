"""Scans one by one in a process of their own: what ends that process is the scan in it, and no other.

A scan can end the process that reads it: a codec that crashes, more memory than there is.  A worker can also be lost
for reasons of its own.  Here the two are told apart: the child dies of a scan, and the worker that watches it does not.
`python -m mona_infer.cohort.alone FD` is the child; it ends with its worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from mona_infer.cohort.settings import Settings
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport
from mona_infer.system.memory_budget import size_in_words

LOOK = 0.2  # seconds between looks at the child's memory


def each_alone(
    settings: Settings, jobs: list[Job], threads: int, stopped: Callable[[], bool], limit: int = 0
) -> Iterator[CaseReport]:
    """Reports in order; a scan that ends the process is named, and the next ones get a new process.

    `limit` is how many bytes the child may hold; 0: as many as it wants.
    """
    left = list(jobs)
    while left:
        with _Child(settings, left, threads) as child:
            while left:
                report = child.next(stopped, limit)
                if report is None:
                    break
                left.pop(0)
                yield report
        if left:
            job = left.pop(0)
            clear_temporary(job)
            place = job.source or str(job.scan)
            yield CaseReport(job.name, place, error=f"{place}: {child.end}; the other scans are not affected")


def clear_temporary(job: Job) -> None:
    """What a killed process left of this mask and its record; a store has nothing to clear."""
    for file in () if job.target else filter(None, (job.out, job.record)):
        for path in file.parent.glob(f".????????.{file.name}") if file.parent.is_dir() else ():
            path.unlink(missing_ok=True)


class _Child:
    """A process that segments scans one after another and says so after each."""

    def __init__(self, settings: Settings, jobs: list[Job], threads: int) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            words = [sys.executable, "-m", __name__, str(theirs.fileno())]
            # in a session of its own: Ctrl-C must not look like the end of a bad scan
            self._process = subprocess.Popen(
                words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._pipe.send((settings, jobs, threads))
        self.end = "unknown"  # why it ended

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # it ends itself, tidily
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def next(self, stopped: Callable[[], bool], limit: int) -> CaseReport | None:
        """The next report; None if the process ended instead."""
        from mona_infer.cohort.task import Stopped

        while not self._pipe.poll(LOOK):
            if stopped():
                raise Stopped
            if limit and (held := _resident(self._process.pid)) > limit:
                self._process.kill()
                self._process.wait()
                self.end = f"needs more memory than a worker may use ({size_in_words(held)} of {size_in_words(limit)})"
                return None
        try:
            report = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.wait()
            self.end = f"the process that segmented it, and nothing else, {_ended(self._process.returncode)}"
            return None
        if isinstance(report, Exception):
            raise report
        assert isinstance(report, CaseReport)
        return report


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if name == "SIGKILL":
        return "was killed (SIGKILL), as happens when memory runs out"
    return f"crashed ({name})"


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def main() -> None:
    """The child."""
    from mona_infer.cohort.task import in_order
    from mona_infer.segmenter import Segmenter

    signal.signal(signal.SIGINT, signal.default_int_handler)
    pipe: Connection = Connection(int(sys.argv[1]))
    settings, jobs, threads = pipe.recv()
    threading.Thread(target=_end_with_the_worker, args=(pipe,), daemon=True).start()
    made: list[Segmenter] = []

    def start() -> Segmenter:
        if not made:
            made.append(settings.segmenter(threads))
        return made[0]

    try:
        for job in jobs:
            clear_temporary(job)
            for report in in_order(settings, [job], start, lambda: False):
                pipe.send(report)
    except (BrokenPipeError, KeyboardInterrupt):  # nobody waits for it any more
        sys.exit(130)
    except Exception as error:
        pipe.send(error)


def _end_with_the_worker(pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()  # there is never anything: it returns when the other end closes, however that ended
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
