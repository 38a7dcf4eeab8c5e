"""Files that are either complete or absent: written under a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from mona_infer.errors import InputError

TEMPORARY = re.compile(r"\.[0-9a-f]{8}\..+")  # the names that a killed process leaves behind


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
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # if nothing can be written, nothing can be removed either
            temporary.unlink(missing_ok=True)


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Fail now if this file (or files in this folder) cannot be written, instead of after the work.

    It tries to write: permissions alone say nothing about a read-only disk, a network share or a root user.
    """
    if path.is_dir() and not folder:
        raise InputError(f"{path} is a folder; give the name of the file to write")
    if folder and path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give the name of a folder")
    place = path if folder else path.parent
    name = f".{secrets.token_hex(4)}.{'mona' if folder else path.name}"
    try:
        while not place.exists():
            place = place.parent
        with (place / name).open("xb"):
            pass
        (place / name).unlink()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
