"""The same command twice at once, on one output: one does the work or both do, and the result is that of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import train_commands
from helpers.four_commands import NAMES, PATIENCE, TRAIN, differing, leftovers, one_sentence, start, words
from helpers.train_commands import Done

from mona_train.run import lock
from mona_train.run.folder import CONFIG

# What the second is told: that it must not be there, or nothing: it waits, or does the same work.
REFUSED = {"train": ("another process is training in", "already contains a run"), "bench": ("is running rows in",)}
SAMPLE = ("prepare", "segment")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.full]) for n in NAMES])
def test_two_at_once(name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    expected = undisturbed(name)
    pair = [start(place, *words(name, tmp_path)) for _ in range(2)]
    done = [Done(p.wait(), *said) for p, said in [(p, p.communicate(timeout=PATIENCE)) for p in pair]]
    codes = sorted(each.code for each in done)
    if name in REFUSED:
        assert codes == [0, 2], done
        told = one_sentence(max(done))
        assert any(text in told for text in REFUSED[name]), told
    else:
        assert codes == [0, 0], done
    assert differing(name, tmp_path, expected) == [] and leftovers(tmp_path) == []


def test_a_run_that_another_process_has_begun_meanwhile_stays(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looked at the folder before the first wrote to it, and got the lock after the first had ended."""
    run, real = tmp_path / "run", lock.only_one

    def late(folder: Path) -> Any:
        folder.mkdir()
        (folder / CONFIG).write_text("the first one's")
        return real(folder)

    monkeypatch.setattr(lock, "only_one", late)
    done = train_commands.mona(place, *TRAIN, "--out", run)
    assert done.code == 2 and "already contains a run" in done.err, done
    assert [(p.name, p.read_text()) for p in run.iterdir()] == [(CONFIG, "the first one's")]
