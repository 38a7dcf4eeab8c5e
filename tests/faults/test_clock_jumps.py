"""A clock that is set, ahead or back, while a command works or between two: nothing that is written depends on it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import jumping_clock
from helpers.four_commands import NAMES, differing, leftovers, run_alone, words
from helpers.train_commands import mona

CLOCK = {"PYTHONPATH": str(next(iter(jumping_clock.__path__)))}
DAY = 86_400
SAMPLE = ("prepare",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.full]) for n in NAMES])
def test_a_clock_that_jumps_while_it_works(
    name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    expected = undisturbed(name)
    done = run_alone(place, *words(name, tmp_path), **CLOCK)
    assert done.code == 0, done
    assert differing(name, tmp_path, expected) == [] and leftovers(tmp_path) == []


@pytest.mark.parametrize("jump", [0, -DAY, DAY])
def test_what_a_killed_command_left_goes_whatever_the_clock_says(jump: int, place: Path, tmp_path: Path) -> None:
    left = half_a_mask(tmp_path, jump)
    assert mona(place, *words("segment", tmp_path)).code == 0
    assert not left.exists() and leftovers(tmp_path) == []


def test_what_a_command_at_work_writes_stays_whatever_the_clock_says(place: Path, tmp_path: Path) -> None:
    """The clock went a day ahead since it began to write."""
    half = half_a_mask(tmp_path, -DAY)
    with (tmp_path / "masks/.mona.lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert mona(place, *words("segment", tmp_path)).code == 0
        assert half.exists()


def test_hidden_files_of_others_stay(place: Path, tmp_path: Path) -> None:
    """A backup may be named like a temporary file, and lie in the folder that a mask is written to."""
    backup = tmp_path / ".20240101.backup.tar.gz"
    backup.write_bytes(b"all I have")
    os.utime(backup, (1, time.time() - DAY))
    done = mona(place, "segment", "scans/scan00.nii.gz", "--model", "model.onnx", "--out", tmp_path / "mask.nii.gz")
    assert done.code == 0 and backup.exists(), done


def half_a_mask(out: Path, age: int) -> Path:
    path = out / "masks" / ".01234567.scan00.nii.gz"
    path.parent.mkdir()
    path.write_bytes(b"half a mask")
    os.utime(path, (time.time() + age,) * 2)
    return path
