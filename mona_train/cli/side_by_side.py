"""Trainings in processes of their own, each with its share of the cores, and a bar for each.

Small networks leave a second thread idle: two trainings of one thread each end sooner than one after the other with
two threads.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mona_infer.errors import CheckFailed
from mona_train.run.tail import last_step, last_words

PAUSE = 0.2  # seconds between two looks
EVERY = 30.0  # seconds between two lines where there is no terminal


def train_side_by_side(train: Callable[..., Any], runs: Mapping[Path, tuple[Any, ...]], steps: int) -> None:
    """`train(*arguments)` for every folder of a run; what a training says goes to said.txt in its folder.

    A new interpreter for each: a copy of this one could not use its threads.
    """
    from mona_kernels.native import cores

    context, threads = multiprocessing.get_context("spawn"), max(1, cores() // len(runs))
    children: dict[Path, BaseProcess] = {}
    try:
        for run, arguments in runs.items():
            run.mkdir(parents=True, exist_ok=True)
            children[run] = context.Process(target=_child, args=(run / "said.txt", threads, train, arguments))
            children[run].start()
        _watch(children, steps)
    finally:  # Ctrl-C reaches them too, and each saves first; if one failed, the other is not waited for
        interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
        for child in children.values():
            if child.is_alive() and not interrupted:
                child.terminate()
            child.join()


def _child(said: Path, threads: int, train: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(threads)
    with said.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            train(*arguments)
        except BaseException as error:  # its end would be said on the terminal, between the bars
            traceback.print_exc()
            raise SystemExit(1) from error


def _watch(children: Mapping[Path, BaseProcess], steps: int) -> None:
    """Until all have ended; as soon as one fails, an error that quotes it."""
    with _bars(list(children), steps) as show:
        while True:
            for run, child in children.items():
                if child.exitcode:
                    raise CheckFailed(f"training {run} failed: {last_words(run / 'said.txt')}")
                show(run, steps if child.exitcode == 0 else last_step(run))
            if all(child.exitcode == 0 for child in children.values()):
                return
            time.sleep(PAUSE)


@contextlib.contextmanager
def _bars(runs: list[Path], steps: int) -> Iterator[Callable[[Path, int], None]]:
    """A function to call with how far a run is: bars on a terminal, elsewhere a line now and then."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            tasks = {run: progress.add_task(run.name, total=steps) for run in runs}

            def update(run: Path, done: int) -> None:
                progress.update(tasks[run], completed=done)

            yield update
        return
    done_by, next_line = dict.fromkeys(runs, 0), time.monotonic() + EVERY

    def show(run: Path, done: int) -> None:
        nonlocal next_line
        done_by[run] = done
        if time.monotonic() > next_line:
            next_line += EVERY
            print(", ".join(f"{r.name}: step {n} of {steps}" for r, n in done_by.items()), file=sys.stderr, flush=True)

    yield show
