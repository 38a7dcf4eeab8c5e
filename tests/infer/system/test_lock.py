"""Who may clear up in a folder that several processes work in, and what is left when they are gone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from pathlib import Path
from unittest.mock import Mock

import pytest

from mona_infer.errors import InputError
from mona_infer.system.lock import LEFT_BEHIND, at_work, only_one

NAME = ".mona.lock"


def test_the_first_clears_up_and_the_last_takes_the_lock_away(tmp_path: Path) -> None:
    folder, clear = tmp_path / "masks", Mock()
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(at_work(folder, NAME, clear))
        second.enter_context(at_work(folder, NAME, clear))
        clear.assert_called_once_with(0)
        (folder / "mask").touch()
        first.close()
        assert (folder / NAME).exists()
        with at_work(folder, NAME, clear):  # the second is still at work
            clear.assert_called_once_with(0)
    assert [path.name for path in folder.iterdir()] == ["mask"]
    with at_work(folder, NAME, clear):
        assert clear.call_count == 2


def test_a_folder_that_stays_empty_goes(tmp_path: Path) -> None:
    with at_work(tmp_path / "masks", NAME, Mock()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_on_a_disk_without_locks_only_old_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOTSUP, "not supported")))
    clear = Mock()
    with at_work(tmp_path, NAME, clear):
        clear.assert_called_once_with(LEFT_BEHIND)
        assert list(tmp_path.iterdir()) == []


def test_a_lock_that_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("process 1 on another machine\n")
    clear = Mock()
    with at_work(tmp_path, NAME, clear):
        clear.assert_called_once_with(0)
    refused = pytest.raises(InputError, match="another process is training")
    with only_one(tmp_path, NAME, "training"), refused, only_one(tmp_path, NAME, "training"):
        pass


def test_a_full_disk_does_not_keep_a_lock_from_being_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds it is written into it as a courtesy."""
    monkeypatch.setattr("mona_infer.system.lock.os.write", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with only_one(tmp_path, NAME, "training"):
        assert (tmp_path / NAME).exists()
    assert list(tmp_path.iterdir()) == []
