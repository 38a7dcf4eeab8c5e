"""Progress bars: shown on a terminal after two seconds, silent everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 2.0  # seconds before a bar appears


def progress(items: Iterable[T], total: int, doing: str) -> Iterator[T]:
    """Pass items through, and show on the terminal (standard error) how many are done."""
    with waiting(doing) as tell:
        for done, item in enumerate(items, start=1):
            yield item
            tell(done, total)


@contextmanager
def waiting(doing: str, each: str = "") -> Iterator[Callable[[float, int], None]]:
    """A function to call with how many items are done, and of how many; fractions are allowed.

    `each` is what the items are called where the bar should say how many are done in a second.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = (TextColumn("{task.fields[rate]}"),) if each else ()
    columns = TextColumn(doing), BarColumn(), MofNCompleteColumn(), *rate, TimeRemainingColumn()
    # Lines printed meanwhile go above the bar, unless standard output is a file.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(doing, total=None, visible=False, rate="")
        start = time.monotonic()

        def tell(done: float, total: int) -> None:
            passed = time.monotonic() - start
            rate = f"{done / passed:.3g} {each}/s" if passed else ""
            bar.update(task, completed=done, total=total, visible=passed > PATIENCE, rate=rate)

        yield tell
