"""How long a step takes, validations included, from the moments at which a run tells of itself.

The first steps of a stage are no measure of the others: kernels are compiled (oneDNN does it for each shape in
bfloat16), memory is taken for the first time, files are read.  So the first stretch is left out, no estimate is given
before two warm ones, and a stretch that took much longer than most counts as no more than twice as long.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from statistics import median

STRETCHES = 50  # the latest that count: at 10 steps each, long enough that the estimate does not jump
FEWEST = 2  # warm stretches before there is an estimate
SLOWEST = 2.0  # times the median
VALIDATIONS = 5  # the latest that count


class Pace:
    """Of one stage.  `number` counts the steps done, `now` is in seconds."""

    def __init__(self, number: int, now: float) -> None:
        self._number, self._time = number, now
        self._cold = True
        self._stretches: deque[tuple[float, int]] = deque(maxlen=STRETCHES)  # seconds, steps
        self._last_validation = number
        self._validations: deque[tuple[float, int]] = deque(maxlen=VALIDATIONS)  # seconds, steps since the one before

    def stepped(self, number: int, now: float) -> None:
        seconds, steps = now - self._time, number - self._number
        self._number, self._time = number, now
        if steps and not self._cold:
            self._stretches.append((seconds, steps))
        self._cold = self._cold and not steps

    def validated(self, number: int, now: float) -> None:
        """Since the last call there was a validation, after a few steps perhaps."""
        seconds = max(0.0, now - self._time - (number - self._number) * (self._each() or 0.0))
        self._number, self._time = number, now
        if number > self._last_validation:
            self._validations.append((seconds, number - self._last_validation))
            self._last_validation = number
        elif self._validations:
            before, steps = self._validations.pop()
            self._validations.append((before + seconds, steps))

    def seconds(self) -> float | None:
        """Of one step and its share of the validations; None before that is known."""
        each = self._each()
        if each is None or not self._validations:
            return each
        steps = sum(steps for _, steps in self._validations) / len(self._validations)
        return each + median(seconds for seconds, _ in self._validations) / steps

    def _each(self) -> float | None:
        stretches = tuple(self._stretches)  # rich's thread asks while training appends
        if len(stretches) < FEWEST:
            return None
        paces = sorted((seconds / steps, steps) for seconds, steps in stretches)
        total = sum(steps for _, steps in paces)
        passed = accumulate(steps for _, steps in paces)  # for the median, each stretch counting by its steps
        usual = next(pace for (pace, _), n in zip(paces, passed, strict=True) if 2 * n >= total)
        return sum(min(pace, SLOWEST * usual) * steps for pace, steps in paces) / total
