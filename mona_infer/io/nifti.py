"""Reading and writing NIfTI-1 and -2, and reading their predecessor Analyze 7.5, a pair of .hdr and .img."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path
from mona_infer.io.formats import PAIR, stem
from mona_infer.io.nifti_affine import analyze_affine, world_affine
from mona_infer.io.nifti_header import LAYOUTS, MAGIC, NOT_GREY, PAIR_MAGIC, Header
from mona_infer.io.scan_file import ScanFile
from mona_infer.io.stored_voxels import Stored, as_input_error, first_bytes
from mona_infer.io.voxel_stream import frame_writer, packing
from mona_infer.volume import Volume


def read_nifti(path: Path, *, frame: int | None = None, budget: int, beside: int = 0) -> Volume:
    """Read a 3-D volume, or one frame of a 4-D one, keeping the stored dtype; see `read_volume`."""
    return open_nifti(path).volume(frame, budget=budget, beside=beside)


def open_nifti(path: Path) -> ScanFile:
    """Read the header of a .nii, a .nii.gz or a pair of .hdr and .img, given by either of its files."""
    where, voxels = _pair(path) if path.name.lower().endswith(PAIR) else (path, path)
    single = where is voxels
    packing = _packing(where)
    with as_input_error(where):
        header = _read_header(where, first_bytes(where, packing, max(LAYOUTS)), single)
    analyze = not single and header.size == 348 and bytes(header["magic"])[:3] != PAIR_MAGIC[348]
    if analyze:
        header = header.of_analyze()
    shape, frames = _shape(where, header)
    dtype, offset = _layout(where, header, single)
    slope, intercept = _scaling(where, header)
    affine, notes = analyze_affine(header) if analyze else world_affine(where, header)
    return ScanFile(
        path,
        Stored(voxels, dtype, shape, frames, packing=packing if single else _packing(voxels), skip=offset),
        affine,
        slope,
        intercept,
        None if analyze else header,  # the mask of an Analyze scan gets a NIfTI header with an orientation
        notes,
    )


def _pair(path: Path) -> tuple[Path, Path]:
    """The header file and the voxel file, given either one; the other is next to it."""
    name = stem(path)
    found = []
    for kind in (".hdr", ".img"):
        beside = [path.with_name(name + end) for end in (kind, f"{kind}.gz", kind.upper(), f"{kind.upper()}.GZ")]
        there = path if path in beside else next((p for p in beside if p.is_file()), None)
        if there is None:
            raise InputError(f"{path} is half of a pair: {name}{kind} is not next to it")
        found.append(there)
    return found[0], found[1]


def _packing(path: Path) -> str:
    """According to the name; the content must agree."""
    named = path.name.lower().endswith(".gz")
    with as_input_error(path), path.open("rb") as file:
        first = file.read(2)
    if not first:
        raise InputError(f"{path} is empty (0 bytes); get a fresh copy")
    if named and first != b"\x1f\x8b":
        plain = path.name[: -len(".gz")]
        raise InputError(f"{path} is named .gz but is not gzip-compressed; if it is plain NIfTI, rename it to {plain}")
    if first == b"\x1f\x8b" and not named and not path.name.lower().endswith(".img"):
        raise InputError(f"{path} is gzip-compressed; rename it to {path.name}.gz")
    return "gzip" if named else "raw"


def write_mask(path: Path, mask: Volume) -> None:
    """Write a label map (uint8 or uint16) on its own grid: the scan's affine, codes and units."""
    if mask.voxels.dtype not in (np.uint8, np.uint16):
        raise TypeError(f"a mask must be uint8 or uint16, found {mask.voxels.dtype}")
    write_nifti(path, mask, intent="label")


def write_nifti(path: Path, volume: Volume, *, intent: str = "none") -> None:
    """Write a volume with its dtype and scaling, all or nothing; the same volume gives the same bytes."""
    with nifti_writer(path, volume, intent=intent) as write:
        write(volume)


@contextlib.contextmanager
def nifti_writer(
    path: Path, first: Volume, *, frames: int = 1, intent: str = "none"
) -> Iterator[Callable[[Volume], None]]:
    """A function that writes one frame after another on the grid of `first`; the file appears when all are written."""
    if not path.name.endswith((".nii", ".nii.gz")):
        raise InputError(f"{path}: the name of a volume must end in .nii or .nii.gz")
    zipped = path.name.endswith(".gz")
    with atomic_path(path) as temporary, temporary.open("wb") as file, packing(file, zipped) as stream:
        yield nifti_stream(stream, first, frames, intent)


def nifti_stream(stream: IO[bytes], first: Volume, frames: int, intent: str) -> Callable[[Volume], None]:
    """Write the header into an open file; returns the function that writes one frame after another behind it."""
    stream.write(bytes(_header_for(first, frames, intent)) + b"\0\0\0\0")  # four zeros: no header extensions follow
    return frame_writer(stream, first)


def _header_for(volume: Volume, frames: int, intent: str) -> Header:
    shape = volume.shape if frames == 1 else (*volume.shape, frames)
    like = volume.header
    if like is None:
        like = Header.empty(348 if max(shape) < 32768 else 540)
        like.set_affine(volume.affine)
    header: Header = like.copy_for(shape, volume.voxels.dtype, intent)
    header["scl_slope"], header["scl_inter"] = volume.slope, volume.intercept
    return header


def _read_header(path: Path, block: bytes, single: bool) -> Header:
    if len(block) < 348:
        raise InputError(f"{path} is too short to be NIfTI ({len(block)} bytes after decompression)")
    size = 540 if 540 in (int.from_bytes(block[:4], order) for order in ("little", "big")) else 348
    header = Header.read(block[:size])
    if header is None:
        raise InputError(f"{path} is not NIfTI: its first bytes are not a NIfTI header")
    magic = bytes(header["magic"])[:3]
    if single and magic != MAGIC[header.size]:
        raise InputError(
            f"{path} is not a single-file NIfTI (magic {magic!r}); if it is half of a pair, rename it to .hdr"
        )
    if not single and magic == MAGIC[header.size]:
        raise InputError(f"{path} says that its voxels are in the same file; rename it to {stem(path)}.nii")
    return header


def _shape(path: Path, header: Header) -> tuple[tuple[int, int, int], int]:
    """The spatial shape and the number of frames."""
    rank = int(header["dim"][0])
    dims = [int(n) for n in header["dim"][1 : rank + 1]] if 0 < rank <= 7 else []
    while len(dims) > 3 and dims[-1] == 1:
        dims.pop()
    if len(dims) not in (3, 4) or min(dims) < 1:
        raise InputError(f"{path}: expected a 3-D or 4-D volume, the header says {dims or rank}")
    return (dims[0], dims[1], dims[2]), dims[3] if len(dims) == 4 else 1


def _layout(path: Path, header: Header, single: bool) -> tuple[np.dtype[Any], int]:
    dtype, code = header.dtype(), int(header["datatype"])
    if dtype is None and code in NOT_GREY:
        raise InputError(f"{path}: voxels of type {NOT_GREY[code]} are not supported; convert to integers or float32")
    if dtype is None:
        raise InputError(f"{path} has an unknown voxel type (code {code})")
    if int(header["bitpix"]) not in (0, dtype.itemsize * 8):
        raise InputError(
            f"{path}: the header contradicts itself (type {dtype}, {int(header['bitpix'])} bits per voxel)"
        )
    offset = float(header["vox_offset"])
    lowest = 352 if single else 0
    if not math.isfinite(offset) or offset != int(offset) or not (offset == 0 or lowest <= offset < 1 << 32):
        raise InputError(f"{path}: the voxels cannot start at byte {offset}; the header is damaged")
    return dtype, int(offset) or (header.size + 4 if single else 0)


def _scaling(path: Path, header: Header) -> tuple[float, float]:
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or math.isnan(slope):  # the standard's way to say "not scaled"
        return 1.0, 0.0
    if not math.isfinite(slope) or not math.isfinite(intercept):
        raise InputError(f"{path}: the intensity scaling in the header is not finite")
    return slope, intercept
