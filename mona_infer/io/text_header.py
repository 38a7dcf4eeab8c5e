"""What NRRD and MetaImage share: a text header, LPS coordinates, and voxels that may be in another file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.formats import check_is_file_or_folder

HEADER_BYTES = 8 << 20  # 3D Slicer writes about 1 kB per segment
MILLIMETRES = {"mm": 1.0, "cm": 10.0, "m": 1e3, "um": 1e-3, "µm": 1e-3, "micron": 1e-3, "microns": 1e-3}
NO_ORIENTATION = (
    "the header has no orientation: its axes are assumed to point left, posterior and superior, as in ITK and "
    "3D Slicer; check left and right, front and back"
)
T = TypeVar("T", int, float)


def header_lines(path: Path, stream: IO[bytes], kind: str) -> Iterator[str]:
    """Read line by line, so that the stream stops where the header ends; a file without lines is not read whole."""
    used = 0
    while used < HEADER_BYTES:
        line = stream.readline(HEADER_BYTES - used)
        if not line:
            if not used:
                raise InputError(f"{path} is empty (0 bytes); get a fresh copy")
            return
        used += len(line)
        yield line.decode("utf-8", "replace").rstrip("\r\n")
    raise InputError(f"{path} is not {kind}: its header does not end within {HEADER_BYTES >> 20} MB")


def numbers(path: Path, name: str, text: str, kind: Callable[[str], T], count: int) -> list[T]:
    try:
        found = [kind(part) for part in text.split()]
    except (ValueError, OverflowError):
        found = []
    if len(found) != count:
        raise InputError(f"{path}: expected {count} number(s) for {name!r}, the header says {text[:80]!r}")
    return found


def sizes(path: Path, name: str, text: str, count: int) -> list[int]:
    found = numbers(path, name, text, int, count)
    if min(found) < 1 or math.prod(found) >= 1 << 50:
        raise InputError(f"{path}: {text[:80]!r} is not a valid number of voxels along each axis")
    return found


def voxel_file(path: Path, name: str) -> Path:
    """The voxel file that a header names; it must be in the same folder, so that a header cannot reach other files."""
    if not name or name in (".", "..") or any(mark in name for mark in "/\\:\0"):
        raise InputError(
            f"{path} stores its voxels in {name!r}, which must be a file in the same folder; "
            "move it there and put just its name in the header"
        )
    there = path.with_name(name)
    try:
        missing = not there.exists()
    except OSError:  # longer than any file name may be
        missing = True
    if missing:
        raise InputError(f"{path} stores its voxels in {name[:200]}, which is not in the same folder; put it there")
    check_is_file_or_folder(there)
    if there.is_dir():
        raise InputError(f"{path} stores its voxels in {name}, which is a folder")
    return there


def ras_affine(
    steps: NDArray[np.float64], origin: NDArray[np.float64], signs: tuple[int, int, int]
) -> NDArray[np.float64]:
    """The affine in NIfTI's RAS+ world; `steps` has one row per voxel axis, `signs` convert to RAS."""
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = steps.T, origin
    affine[:3] *= np.array(signs, np.float64)[:, None]
    return affine
