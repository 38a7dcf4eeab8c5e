"""One process works in a folder.  The lock is the system's own: it ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from mona_infer.errors import InputError


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
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
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
