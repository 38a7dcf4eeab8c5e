"""Files that are either complete or absent: written under a temporary name, flushed to disk, then renamed.

The folder is flushed too: after a power cut, what a command said it wrote is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from mona_infer.errors import InputError

TEMPORARY = re.compile(r"\.[0-9a-f]{8}\..+")  # the names that a killed process leaves behind
RANDOM = len(".01234567.")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; it is renamed to `path` on success and removed on failure."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of the file to write")
    temporary = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()  # with the umask's mode; some writers replace it with a file of mode 0600
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # if nothing can be written, nothing can be removed either
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of a file that stays open: the system no longer says its name when the disk is full."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk: a file's own flush does not promise that its name survives a power cut."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some network disks refuse
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def clear_left_behind(paths: Iterable[Path], age: float) -> None:
    """Remove what killed processes left of these files, if it is that old; or from the future: clocks are set back.

    Only their own temporary names: the folder is the user's, and holds hidden files of others.
    """
    names: dict[Path, set[str]] = {}
    for path in paths:
        names.setdefault(path.parent, set()).add(path.name)
    for folder, wanted in names.items():
        for path in folder.iterdir() if folder.is_dir() else ():
            if not TEMPORARY.fullmatch(path.name) or path.name[RANDOM:] not in wanted:
                continue
            with contextlib.suppress(OSError):  # gone meanwhile
                if abs(time.time() - path.stat().st_mtime) >= age:
                    path.unlink()


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Fail now if this file (or files in this folder) cannot be written, instead of after the work.

    It tries to write: permissions alone say nothing about a read-only disk, a network share or a root user.
    """
    if path.is_dir() and not folder:
        raise InputError(f"{path} is a folder; give the name of the file to write")
    if folder and path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give the name of a folder")
    import tempfile  # slow to import

    place = path if folder else path.parent
    try:
        while not place.exists():
            place = place.parent
        if folder:
            with tempfile.TemporaryFile(dir=place):  # without a name where that exists: a kill leaves nothing
                pass
            return
        name = f".{secrets.token_hex(4)}.{path.name}"  # with the file's own, which may be too long
        with (place / name).open("xb"):
            pass
        (place / name).unlink()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
