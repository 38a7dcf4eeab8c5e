"""What every reader promises: whatever the input, a value or one of mona's errors, in bounded time and memory."""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from mona_infer.errors import MonaError
from mona_infer.system.memory_budget import resident

SECONDS = 10.0  # of the processor; seeds take milliseconds
MEMORY = 512 << 20
SENTENCE = 1000  # characters


def answer(read: Callable[[bytes, Path], object], data: bytes, folder: Path) -> str:
    """ "a value" or the name of the error; anything else that the reader does is raised as a finding."""
    for left in folder.iterdir():
        left.unlink()
    began, before = time.process_time(), resident()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # on a terminal a warning would be a second sentence
        try:
            read(data, folder)
            result = "a value"
        except MonaError as error:
            said, result = str(error), type(error).__name__
            assert said and said.isprintable() and len(said) < SENTENCE, f"not one sentence: {said!r}"
            assert error.exit_code in (2, 3), f"exit code {error.exit_code}: {said}"
    took, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert took < SECONDS, f"took {took:.0f} s"
    assert peak - before < MEMORY or peak < _peak_at_start + MEMORY, f"needed {(peak - before) >> 20} MB"
    return result


_peak_at_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
