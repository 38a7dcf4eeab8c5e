"""A disk that cannot be written to: said before any work, in one sentence; writable again, the command completes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.four_commands import NAMES, differing, leftovers, one_sentence, run, words
from helpers.small_disks import memory_disk, needs_mount

pytestmark = needs_mount
ROOM = 64 << 20
SAMPLE = ("prepare", "segment")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.full]) for n in NAMES])
def test_read_only_output(name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    expected = undisturbed(name)
    out = tmp_path / "out"
    with memory_disk(out, ROOM) as disk:
        disk.read_only(True)
        done = run(place, *words(name, out))
        assert done.code == 2, done
        assert str(out) in one_sentence(done) and "Read-only file system" in one_sentence(done), done
        disk.read_only(False)
        assert list(out.iterdir()) == []
        again = run(place, *words(name, out))
        assert again.code == 0, again
        assert differing(name, out, expected) == [] and leftovers(out) == []


def test_a_prepared_cache_on_a_read_only_disk_is_used(place: Path, tmp_path: Path) -> None:
    """Datasets are often prepared once, for everybody, where only a few may write."""
    with memory_disk(tmp_path / "shared", ROOM) as disk:
        cache = tmp_path / "shared" / "hearts-32x32"
        shutil.copytree(place / "cache/hearts-32x32", cache)
        disk.read_only(True)
        done = run(place, "data", "prepare", "hearts", "--size", "32x32", "--out", cache)
        assert done.code == 0 and "already prepared" in done.out, done
        other = run(place, "data", "prepare", "hearts", "--size", "16x16", "--out", cache)
        assert other.code == 2 and "Read-only file system" in one_sentence(other), other
