"""machine.json: where and with what a run was trained: code, hardware, threads, time passed and of processor, memory.

Beside results.json and never in it: a run that was killed and resumed has the same results, but not the same times.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from mona_infer import __version__
from mona_infer.io.atomic import write_text
from mona_kernels.native import cores
from mona_train.run.code import code_hash, commit

FILE = "machine.json"
MIXED = "mixed"  # a run that was resumed with other code than it was started with


class Machine:
    """What is written at every checkpoint; nowhere, where the folder is None (processes other than the first)."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder else None
        self._before: dict[str, Any] | None = None
        self._start, self._processor_start = time.monotonic(), time.process_time()

    def write(self) -> None:
        if self._path is None:
            return
        if self._before is None:
            self._before = read_machine(self._path.parent)
        before = self._before
        facts: dict[str, Any] = {"commit": commit(), "code": code_hash(), "version": __version__}
        facts |= {"torch": torch.__version__, "threads": torch.get_num_threads(), "hardware": hardware()}
        for name in ("commit", "code", "threads", "hardware"):
            if name in before and before[name] != facts[name]:
                facts[name] = MIXED
        # of the steps that count: what a killed process did after its last checkpoint is done again
        facts["seconds"] = round(before.get("seconds", 0.0) + time.monotonic() - self._start, 1)
        used = time.process_time() - self._processor_start  # of all threads: the same beside other programs
        facts["processor_seconds"] = round(before.get("processor_seconds", 0.0) + used, 1)
        facts["peak_memory"] = max(before.get("peak_memory", 0), _peak_memory())
        write_text(self._path, json.dumps(facts) + "\n")


def read_machine(run: Path) -> dict[str, Any]:
    """Empty for a run of an older version, which did not record it."""
    try:
        found = json.loads((run / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def hardware() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    count = cores()
    return f"{_processor()}, {count} core{'s' * (count != 1)}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _peak_memory() -> int:
    """Bytes: of the process, and of a GPU where there is one."""
    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(torch.cuda.max_memory_allocated() if torch.cuda.is_available() else resident)
