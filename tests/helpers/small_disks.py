"""Disks of their own for tests: small, read-only, or cut off from power.  They need root and the right to mount."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

LATE = 600  # seconds between commits of ext4's journal: only what a program asks for is on the disk before that


@cache
def why_not(*programs: str) -> str:
    """Why nothing can be mounted here; empty if it can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "needs root, to mount a disk"
    if missing := [program for program in ("mount", "umount", *programs) if shutil.which(program) is None]:
        return f"needs {', '.join(missing)}"
    allowed = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return "" if allowed.returncode == 0 else "mounting is not allowed here"


needs_mount = pytest.mark.skipif(bool(why_not("unshare")), reason=why_not("unshare") or "-")
no_ext4 = why_not("unshare", "mkfs.ext4") or ("" if Path("/dev/loop-control").exists() else "needs loop devices")
needs_ext4 = pytest.mark.skipif(bool(no_ext4), reason=no_ext4 or "-")


def _do(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True, capture_output=True)


class Disk:
    """A folder with a disk of its own in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, size: int) -> None:
        """Bytes; the files stay."""
        _do("mount", "-o", f"remount,size={size}", self.folder)

    def read_only(self, yes: bool) -> None:
        _do("mount", "-o", f"remount,{'ro' if yes else 'rw'}", self.folder)


@contextlib.contextmanager
def memory_disk(folder: Path, size: int) -> Iterator[Disk]:
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "none"):
        yield Disk(folder)


@contextlib.contextmanager
def ext4(folder: Path, image: Path, *, megabytes: int = 0) -> Iterator[None]:
    """The disk in a file, made if a size is given; else as it is, its journal replayed as after a power cut."""
    if megabytes:
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _do("mkfs.ext4", "-q", "-F", image)
    with _mounted(folder, "-o", f"loop,commit={LATE}", image):
        yield


@contextlib.contextmanager
def _mounted(folder: Path, *words: object) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    _do("mount", *words, folder)
    try:
        yield
    finally:
        _do("umount", "--lazy", folder)  # a process that is just ending may still be in it
