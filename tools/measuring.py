"""Time and peak memory of a call, measured the same way in every benchmark."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console()


@dataclass(frozen=True)
class Cost:
    best: float  # milliseconds; other load can only slow a run down, so the shortest is the most accurate
    median: float
    megabytes: float  # peak above what was held before the call
    answer: Any


def cost(call: Callable[[], Any], runs: int, *, again: bool = False) -> Cost:
    """`again`: time as in a loop, where a call reuses freed memory; the peak comes from a first, untimed call."""
    times, peak, answer = [], 0.0, None
    for n in range(runs + again):
        answer = None
        if n == 0 or not again:
            ctypes.CDLL(None).malloc_trim(0)  # or memory freed by an earlier call would be reused, uncounted
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak (proc(5))
        before, start = memory("VmRSS"), time.perf_counter()
        answer = call()
        times.append(1e3 * (time.perf_counter() - start))
        peak = max(peak, memory("VmHWM") - before)
    times = times[again:]
    return Cost(min(times), statistics.median(times), peak, answer)


def show(title: str, rows: dict[str, Cost]) -> None:
    """Rows are compared with the first; ratios say how many times as much they need."""
    table = Table("", "time", "ratio", "peak memory", "ratio", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    first = next(iter(rows.values()))
    for name, c in rows.items():
        ratios = f"{c.best / first.best:.3g}", f"{c.megabytes / max(first.megabytes, 1.0):.3g}"
        table.add_row(name, f"{c.best:.1f} ms", ratios[0], f"{c.megabytes:.0f} MB", ratios[1])
    console.print(table)


def memory(key: str) -> float:
    """Megabytes of this process."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(key))
    return int(line.split()[1]) * 1024 / 1e6
