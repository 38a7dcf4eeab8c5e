"""The two trainings of the demo: processes with their share of the cores, and one of them failing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mona_infer.errors import CheckFailed
from mona_train.cli.side_by_side import train_side_by_side


def noted(run: Path, seconds: float) -> None:
    """Stands for a training: its process, its threads, what it says."""
    import torch

    print("epoch of great loss")
    time.sleep(seconds)
    (run / "done.txt").write_text(f"{os.getpid()} {torch.get_num_threads()}")


def failing(run: Path, seconds: float) -> None:
    time.sleep(seconds)
    if seconds < 10:
        raise ValueError("no such luck")
    (run / "done.txt").write_text("it was not stopped")


def test_each_has_a_process_and_its_share_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mona_kernels.native.cores", lambda: 6)
    runs = {tmp_path / name: (tmp_path / name, 0.1) for name in ("a", "b")}
    train_side_by_side(noted, runs, steps=10)
    (one, threads), (other, others) = ((run / "done.txt").read_text().split() for run in runs)
    assert threads == others == "3" and len({one, other, str(os.getpid())}) == 3
    assert [(run / "said.txt").read_text() for run in runs] == ["epoch of great loss\n"] * 2


def test_one_that_fails_is_quoted_and_the_other_is_not_waited_for(tmp_path: Path) -> None:
    runs = {tmp_path / "good": (tmp_path / "good", 600.0), tmp_path / "bad": (tmp_path / "bad", 0.1)}
    start = time.monotonic()
    with pytest.raises(CheckFailed, match="bad failed: ValueError: no such luck"):
        train_side_by_side(failing, runs, steps=10)
    assert time.monotonic() - start < 120 and not (tmp_path / "good/done.txt").exists()
