"""How tests start processes that train together, how long they wait for them, and that none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
TORCHRUN = (BIN / "torchrun", "--standalone", "--nproc-per-node", "2")
TOLERANCE = 1e-5  # measured here: every difference is 0
PATIENCE = 900  # seconds; on two quiet cores a run takes 15


class Command:
    """`mona` in processes that share a terminal, so to speak: what Ctrl-C reaches, and what may be left behind."""

    def __init__(self, where: Path, *words: Any, launcher: tuple[Any, ...] = ()) -> None:
        self.where = where
        self.child = subprocess.Popen(
            [*map(str, (*launcher, BIN / "mona", *words))],
            cwd=where,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ends(self, within: float = PATIENCE) -> tuple[int, str]:
        """Exit code and what was said, once no process is left; fails if one stays longer than that."""
        end = time.monotonic() + within
        try:
            said, _ = self.child.communicate(timeout=within)
            while self.processes():
                assert time.monotonic() < end, f"left behind: {self.processes()}\n{said}"
                time.sleep(0.1)
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return self.child.returncode, said

    def processes(self) -> list[int]:
        """All that work in the run's folder, whoever started them."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink() == self.where and "Z" not in (entry / "stat").read_text().split()[2]:
                    found.append(int(entry.name))
        return found

    def steps_are_logged(self, run: Path, count: int) -> None:
        end = time.monotonic() + PATIENCE
        while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_bytes().splitlines()) < count:
            assert self.child.poll() is None and time.monotonic() < end, self.child.communicate()[0]
            time.sleep(0.02)
