"""Progress bars for people: shown on a terminal after two seconds, silent everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 2.0  # seconds before a bar appears


def progress(items: Iterable[T], total: int, doing: str) -> Iterator[T]:
    """Pass items on, telling a waiting terminal (on standard error) how many are done."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total, visible=False)
        start = time.monotonic()
        for item in items:
            yield item
            bar.update(task, advance=1, visible=time.monotonic() - start > PATIENCE)
