"""A process that is frozen in the middle of its work (SIGSTOP, a suspended laptop, a paused machine) and continued."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.forked import rows
from helpers.four_commands import (
    NAMES,
    PATIENCE,
    differing,
    leftovers,
    signal_all,
    start,
    wait_until,
    words,
)

FROZEN = 2.0  # seconds
# What somebody is told who types the command again meanwhile; segment does the work itself, prepare waits.
TOLD = {"train": "another process is training in", "bench": "another process is running rows in"}
SAMPLE = ("prepare", "segment")


def at_work(name: str, out: Path) -> bool:
    """Whether the command has begun to write."""
    if name == "train":
        return (out / "run/metrics.jsonl").exists()
    if name == "bench":
        return bool(rows()) and any(out.glob("bench/rows/*/metrics.jsonl"))
    if name == "prepare":
        return any(out.glob("cache.shards/*"))
    return any(out.glob("masks/*.nii.gz"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.full]) for n in NAMES])
def test_frozen_and_continued(
    name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    expected = undisturbed(name)
    first = start(place, *words(name, tmp_path))
    try:
        assert wait_until(first, lambda: at_work(name, tmp_path)), first.communicate()
        signal_all(first, signal.SIGSTOP)
        second = start(place, *words(name, tmp_path))
        if name == "prepare":
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(FROZEN)
        else:
            said = second.communicate(timeout=PATIENCE)
            if name == "segment":
                assert second.returncode == 0, said
                assert [n for n in differing(name, tmp_path, expected) if n in expected] == []
            else:
                assert second.returncode == 2 and TOLD[name] in said[1], said
    finally:
        signal_all(first, signal.SIGCONT)
    out, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, (out, err)
    if name == "prepare":
        said = second.communicate(timeout=PATIENCE)
        assert second.returncode == 0 and "waiting for another process that prepares" in said[0], said
        assert "already prepared" in said[0]
    assert differing(name, tmp_path, expected) == [] and leftovers(tmp_path) == []
