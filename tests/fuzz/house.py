"""What every reader promises: whatever the input, a value or one of mona's errors, in bounded time and memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

from mona_infer.errors import MonaError

SECONDS = 10.0  # of the processor; seeds take milliseconds
MEMORY = 256 << 20  # beyond what the process has before: four times the budget that targets give a volume
SENTENCE = 10_000  # characters: a list of every setting of a run has 1,400


def answer(read: Callable[[bytes, Path], object], data: bytes, folder: Path) -> str:
    """ "a value" or the name of the error; anything else that the reader does is raised as a finding."""
    for left in folder.iterdir():
        left.unlink()
    began, before = time.process_time(), _peak(reset=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # on a terminal a warning would be a second sentence
        try:
            read(data, folder)
            result = "a value"
        except MonaError as error:
            said, result = str(error), type(error).__name__
            assert said and len(said) < SENTENCE, f"not a sentence: {said[:200]!r}"
            assert error.exit_code in (2, 3), f"exit code {error.exit_code}: {said}"
    took, more = time.process_time() - began, _peak() - before
    assert took < SECONDS, f"took {took:.0f} s"
    assert more < MEMORY, f"needed {more >> 20} MB"
    return result


def _peak(reset: bool = False) -> int:
    """The most memory that was resident since the last reset; 0 where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak becomes the present
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
