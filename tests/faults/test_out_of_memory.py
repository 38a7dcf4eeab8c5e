"""Out of memory: the kernel kills (SIGKILL, no word to anybody); where memory is only limited, a sentence."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.four_commands import NAMES, PATIENCE, differing, leftovers, partial, run, start, words

GROUPS = Path("/sys/fs/cgroup/memory")  # of version 1; with version 2, systemd has the say
LIMIT = 16 << 20  # bytes, on top of what was imported: too little for the work of any of the four
SAMPLE = ("prepare", "segment")
needs_groups = pytest.mark.skipif(
    not (GROUPS / "memory.limit_in_bytes").exists() or os.geteuid() != 0, reason="needs root and memory cgroups (v1)"
)


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """The kernel kills what takes more."""
    group = GROUPS / f"mona-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(limit))
    try:
        yield group
    finally:
        while (group / "tasks").read_text():
            for pid in (group / "tasks").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        group.rmdir()


@needs_groups
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.full]) for n in NAMES])
def test_killed_by_the_kernel(
    name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    expected = undisturbed(name)
    with memory_group(LIMIT) as group:
        process = start(place, *words(name, tmp_path), group=group)
        said = process.communicate(timeout=PATIENCE)
    if name == "bench" and process.returncode > 0:  # it was the row that had to go, again and again
        assert process.returncode == 1 and "(too little memory?)" in said[1], said
    else:
        assert process.returncode == -signal.SIGKILL, (process.returncode, said)
    assert partial(name, tmp_path, expected) == []
    again = run(place, *words(name, tmp_path))
    assert again.code == 0, again
    assert differing(name, tmp_path, expected) == [] and leftovers(tmp_path) == []
