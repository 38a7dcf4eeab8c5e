"""A disk that fills up: the command says so and leaves nothing half-written; with room it ends as if it never had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.four_commands import NAMES, differing, leftovers, one_sentence, partial, run, size_of, words
from helpers.small_disks import memory_disk, needs_mount

pytestmark = needs_mount
ROOM = 64 << 20
# One bad case, or one bad row, never stops the others: a check has failed.  A bench has files of its own, too.
CODES = {"train": (2,), "prepare": (2,), "segment": (1,), "bench": (1, 2)}
SHARES = (0.02, 0.2, 0.5, 0.8, 0.95)
SAMPLE = {("prepare", 0.5), ("segment", 0.5), ("train", 0.5)}


def marks(name: str, share: float) -> Any:
    return pytest.param(name, share, marks=[] if (name, share) in SAMPLE else [pytest.mark.full])


@pytest.mark.parametrize(("name", "share"), [marks(name, share) for name in NAMES for share in SHARES])
def test_a_full_disk(
    name: str, share: float, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """It fills up when `share` of what the command leaves has been written."""
    expected = undisturbed(name)
    out = tmp_path / "out"
    with memory_disk(out, max(4096, int(share * size_of(expected)))) as disk:
        done = run(place, *words(name, out))
        assert done.code in CODES[name], done
        assert "No space left on device" in one_sentence(done) + done.err, done
        assert partial(name, out, expected) == []
        if name != "bench":
            assert [left for left in leftovers(out) if not left.endswith(".shards")] == []
        disk.resize(ROOM)
        again = run(place, *words(name, out))
        assert again.code == 0, again
        assert differing(name, out, expected) == []
        assert leftovers(out) == []
