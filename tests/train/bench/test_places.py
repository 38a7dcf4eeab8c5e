"""A row can be stopped, however its bench was started."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from mona_train.bench import places


def test_a_row_hears_its_bench_even_if_that_was_started_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell lets what it starts with & ignore SIGINT, and children inherit that."""
    waits = "print('ready', flush=True); import time; time.sleep(60)"
    monkeypatch.setattr(places, "MONA", (sys.executable, "-c", places.HEARS + waits))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        job = places.Here().start([], tmp_path / "log", 1)
    finally:
        signal.signal(signal.SIGINT, before)
    end = time.monotonic() + 30
    while "ready" not in (tmp_path / "log").read_text() and time.monotonic() < end:
        time.sleep(0.05)
    job.stop()
    while job.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert job.poll() == -signal.SIGINT
