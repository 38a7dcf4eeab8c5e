"""A run as it goes on: a live display on a terminal, a plain line now and then anywhere else (standard error)."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mona_train.run.pace import Pace

EVERY = 30.0  # seconds between plain lines
MEMORY = 0.99  # of the shown losses, a step: about the last hundred steps


class Display:
    """Steps are counted from 1 over the whole run, so a number is also how many are done.

    first: the steps done before this process; the time they took is no part of the pace.
    best: (step, score) of the best validation before this process.
    """

    def __init__(
        self,
        total_steps: int,
        quiet: bool = False,
        *,
        first: int = 0,
        best: tuple[int, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._number, self._clock = total_steps, first, clock
        self._worth = float(total_steps)  # of the whole run, in steps of this stage
        self._stage, self._lr = "", math.nan
        self._losses: dict[str, float] = {}
        self._last, self._best = best, best
        self._spoken = clock()
        self._pace = Pace(first, clock())
        self._console = Console(stderr=True, highlight=False)
        self._plain = not quiet and (not sys.stderr.isatty() or self._console.is_dumb_terminal)
        self._live: Live | None = None
        if not quiet and not self._plain:
            # What others print goes above the bar, unless it goes into a file.
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=4,
                redirect_stdout=sys.stdout.isatty(),
            )

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def stage(self, name: str, first: int, last: int, *, later: float | None = None) -> None:
        """A stage begins, or goes on: it has the steps first + 1 to last.  Its losses and pace are its own.

        later: what comes after it, as so many of its own steps; where nothing is said, every step is worth the same.
        """
        self._worth = last + (self._total - last if later is None else later)
        self._stage, self._losses = name, {}
        self._spoken = self._clock()
        self._number = max(first, self._number)
        self._pace = Pace(self._number, self._spoken)
        self.say(f"{name}: steps {self._number + 1} to {last} of {self._total}")

    def step(self, number: int, losses: Mapping[str, float], lr: float) -> None:
        """`number` steps are done; need not be told of each."""
        done = number - self._number
        self._lr, self._losses = lr, {name: self._smooth(name, value, done) for name, value in losses.items()}
        self._pace.stepped(number, self._clock())
        self._number = number
        if self._plain and self._clock() - self._spoken >= EVERY:
            self._speak()

    def validated(self, number: int, score: float, best: bool) -> None:
        """The mean DSC of the validation after step `number`; whether it is the best so far."""
        self._last = number, score
        if best:
            self._best = self._last
        self._pace.validated(number, self._clock())
        self._number = number
        if self._plain:
            self._speak()

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self._live is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        elif self._plain:
            print(text, file=sys.stderr, flush=True)

    def _smooth(self, name: str, value: float, done: int) -> float:
        """A moving mean that shows a NaN at once and gets over it."""
        before = self._losses.get(name, math.nan)
        fade = MEMORY ** max(1, done)
        return fade * before + (1 - fade) * value if math.isfinite(before) else value

    def _speak(self) -> None:
        self._spoken = self._clock()
        values = (f"{name} {value:.3g}" for name, value in self._values().items())
        self.say("  ".join([f"{self._stage} {self._count()}", *self._when(), *values, *self._scores()]))

    def _count(self) -> str:
        return f"{self._number}/{self._total}"

    def _when(self) -> list[str]:
        """The pace of this stage, and what it makes of all the steps to come; nothing before the pace is known."""
        each = self._pace.seconds()
        if each is None:
            return []
        speed = f"{each:.2f} s/step" if each >= 0.1 else f"{1 / max(each, 1e-9):.0f} steps/s"
        return [speed, f"ETA {span(each * (self._worth - self._number))}"]

    def _values(self) -> dict[str, float]:
        return self._losses | ({"lr": self._lr} if math.isfinite(self._lr) else {})

    def _scores(self) -> list[str]:
        if self._last is None:
            return []
        best = f" (best {self._best[1]:.3f} at {self._best[0]})" if self._best else ""
        return [f"DSC {self._last[1]:.3f}{best}"]

    def _render(self) -> RenderableType:
        """Called by rich's own thread: reads attributes that are replaced whole, never changed in place."""
        head = Table.grid(padding=(0, 2, 0, 0), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        cells: list[RenderableType] = [
            Text(self._stage, style="bold"),
            ProgressBar(total=self._total, completed=self._number),
            *(Text(words, no_wrap=True) for words in (self._count(), *self._when())),
        ]
        for _ in cells[2:]:
            head.add_column(no_wrap=True)
        head.add_row(*cells)
        # Padded to the widest number, 1.23e-05, so that columns do not move.
        values = [Text.assemble((f"{name} ", "dim"), f"{value:<8.3g}") for name, value in self._values().items()]
        scores = [Text(words, style="green") for words in self._scores()]
        return Group(head, Columns(values, padding=(0, 2)), *scores)


def span(seconds: float) -> str:
    """A time to wait, in the two largest units that matter."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
