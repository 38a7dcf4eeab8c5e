"""One process works in a folder, or several know of each other.

The lock is the system's own: it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from mona_infer.errors import InputError

LEFT_BEHIND = 3600.0  # seconds: on a disk without locks, an older temporary file was left by a killed process


@contextlib.contextmanager
def only_one(folder: Path, name: str, doing: str) -> Iterator[None]:
    """Refuses if another process holds the lock.  The file is empty of meaning once nobody does, and is removed."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: no lock
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise InputError(
                f"another process is {doing} in {folder}{f' ({owner})' * bool(owner)}; wait for it, or stop it first"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                break
        file.close()  # it was removed by its last owner between open and lock
    try:
        file.truncate(0)
        with contextlib.suppress(OSError):  # a full disk: the lock itself needs no room
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def is_held(folder: Path, name: str) -> bool:
    """Whether a process works in this folder now."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        with (folder / name).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def at_work(folder: Path, name: str, clear: Callable[[float], None]) -> Iterator[None]:
    """Held together by all processes that work in a folder.

    The first of them calls `clear(0)`: whatever lies there was left by a killed process, however young it looks.
    Where there are no locks, nobody knows, so `clear(LEFT_BEHIND)` leaves what is younger than that.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    file = _shared(path, clear)
    try:
        yield
    finally:
        if file is not None:
            _leave(path, file)
        if made:
            with contextlib.suppress(OSError):  # not empty: the usual end
                folder.rmdir()


def _shared(path: Path, clear: Callable[[float], None]) -> IO[str] | None:
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        clear(LEFT_BEHIND)
        return None
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(0)
        except BlockingIOError:
            pass
        except OSError:  # a disk without locks
            file.close()
            path.unlink(missing_ok=True)
            clear(LEFT_BEHIND)
            return None
        fcntl.flock(file, fcntl.LOCK_SH)  # from here on others may come in, but nobody clears up
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        file.close()  # it was removed by its last owner between open and lock


def _leave(path: Path, file: IO[str]) -> None:
    """The last one takes the lock's file away."""
    import fcntl

    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    file.close()
