"""NIfTI-1 and -2 in and out: the voxels straight into one array of their stored dtype.

Nothing is allocated before the header's promises have been held against the file and the memory budget.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from isal import igzip
from isal.isal_zlib import IsalError
from numpy.typing import NDArray

from mona_infer.atomic import atomic_path
from mona_infer.errors import InputError
from mona_infer.memory import TooLarge
from mona_infer.nifti_header import MAGIC, NOT_GREY, Header
from mona_infer.volume import Volume

DEFLATE_LIMIT = 1032  # deflate cannot shrink data more than this: a header that promises more is lying
BOMB_BYTES, BOMB_RATIO = 512 << 20, 200  # real scans shrink 2- to 10-fold, even sparse masks rarely 200-fold
CHUNK = 4 << 20


def read_nifti(path: Path, *, frame: int | None = None, budget: int, beside: int = 0) -> Volume:
    """Read a 3-D volume, or frame `frame` of a 4-D one, keeping the stored dtype.

    Uncompressed files are memory-mapped.  At most `budget` bytes are allocated, of which each voxel needs `beside` for
    what the caller will hold beside the scan.
    """
    return next(_frames(path, lambda frames: [_frame_index(path, frames, frame)], budget, beside))


def read_nifti_frames(path: Path, *, budget: int, beside: int = 0) -> Iterator[Volume]:
    """The frames of a 4-D volume one after the other, one of them in memory at a time; of a 3-D one, itself."""
    return _frames(path, range, budget, beside)


def _frames(path: Path, choose: Callable[[int], Sequence[int]], budget: int, beside: int) -> Iterator[Volume]:
    """The chosen frames, which are in ascending order: a compressed file is unpacked once, from front to end."""
    packed = path.name.lower().endswith(".gz")
    with _one_sentence(path), _open(path, packed) as stream:
        header = _read_header(path, stream)
        shape, frames = _shape(path, header)
        chosen = choose(frames)
        dtype, offset = _layout(path, header)
        count, at = math.prod(shape), header.size
        size = count * dtype.itemsize
        held = count * ((dtype.itemsize if packed else 0) + beside)
        _check_size(path, packed, needed=offset + (chosen[-1] + 1) * size, held=held, budget=budget)
        slope, intercept = _scaling(path, header)
        affine, notes = _affine(path, header)
        for index in chosen:
            start = offset + index * size
            if packed:
                voxels = np.empty(count, dtype)
                _skip(stream, start - at)
                _fill(stream, voxels)
                at = start + size
                if index == frames - 1:
                    stream.read(CHUNK)  # reaching the end is what verifies the checksum
            else:
                voxels = np.memmap(path, dtype, "r", offset=start, shape=(count,))
            yield Volume(
                voxels=voxels.reshape(shape, order="F"),
                affine=affine,
                slope=slope,
                intercept=intercept,
                source=str(path),
                header=header,
                notes=notes,
                frames=frames,
            )
            del voxels  # or this frame would be held while the next is read


@contextlib.contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, IsalError, gzip.BadGzipFile) as error:  # type: ignore[misc]  # isal has no types
        raise InputError(f"{path} is damaged or cut short ({error}); get a fresh copy") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def write_mask(path: Path, mask: Volume) -> None:
    """Write a label map (uint8 or uint16) on its own grid: the scan's affine, codes and units."""
    if mask.voxels.dtype not in (np.uint8, np.uint16):
        raise TypeError(f"a mask is uint8 or uint16, found {mask.voxels.dtype}")
    write_nifti(path, mask, intent="label")


def write_nifti(path: Path, volume: Volume, *, intent: str = "none") -> None:
    """Write a volume with its stored dtype and scaling, all or nothing; the same volume gives the same bytes."""
    with nifti_writer(path, volume, intent=intent) as write:
        write(volume)


@contextlib.contextmanager
def nifti_writer(
    path: Path, first: Volume, *, frames: int = 1, intent: str = "none"
) -> Iterator[Callable[[Volume], None]]:
    """What writes one frame after the other, all on the grid of `first`: the file appears when all are written."""
    if not path.name.endswith((".nii", ".nii.gz")):
        raise InputError(f"{path}: a volume is written as .nii or .nii.gz")
    header = _header_for(first, frames, intent)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        # No file name and no time inside the gzip header: they would differ from run to run.
        packed = igzip.IGzipFile("", "wb", 2, file, 0) if path.name.endswith(".gz") else None
        stream = cast(IO[bytes], packed or file)
        stream.write(bytes(header) + b"\0\0\0\0")  # four zeros: no header extensions follow

        stored = first.voxels.dtype.newbyteorder("<")

        def write(volume: Volume) -> None:
            for k in range(volume.shape[2]):
                stream.write(volume.voxels[:, :, k].astype(stored, copy=False).tobytes(order="F"))

        yield write
        if packed:
            packed.close()


def _header_for(volume: Volume, frames: int, intent: str) -> Header:
    shape = volume.shape if frames == 1 else (*volume.shape, frames)
    like = volume.header
    if like is None:
        like = Header.empty(348 if max(shape) < 32768 else 540)
        like.set_affine(volume.affine)
    header: Header = like.copy_for(shape, volume.voxels.dtype, intent)
    header["scl_slope"], header["scl_inter"] = volume.slope, volume.intercept
    return header


def _open(path: Path, packed: bool) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    if packed and not is_gzip:
        raise InputError(f"{path} is named .gz but is not gzip-compressed; rename it to .nii if it is plain NIfTI")
    if is_gzip and not packed:
        raise InputError(f"{path} is gzip-compressed; rename it to {path.name}.gz")
    return cast(IO[bytes], igzip.open(path, "rb")) if packed else path.open("rb")


def _read_header(path: Path, stream: IO[bytes]) -> Header:
    block = stream.read(348)
    if len(block) < 348:
        raise InputError(f"{path} is too short to be NIfTI ({len(block)} bytes after decompression)")
    if 540 in (int.from_bytes(block[:4], "little"), int.from_bytes(block[:4], "big")):
        block += stream.read(540 - 348)
    header = Header.read(block)
    if header is None:
        raise InputError(f"{path} is not NIfTI: its first bytes are not a NIfTI header")
    if bytes(header["magic"])[:3] != MAGIC[header.size]:
        raise InputError(f"{path} is not a single-file NIfTI (magic {bytes(header['magic'])!r}); convert it to .nii.gz")
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


def _frame_index(path: Path, frames: int, frame: int | None) -> int:
    if frame is None and frames > 1:
        raise InputError(f"{path} has {frames} frames; choose one with --frame 0..{frames - 1} (mona segment: or all)")
    if frame is not None and not 0 <= frame < frames:
        raise InputError(f"{path} has {frames} frame(s), numbered from 0; there is no frame {frame}")
    return frame or 0


def _layout(path: Path, header: Header) -> tuple[np.dtype[Any], int]:
    dtype, code = header.dtype(), int(header["datatype"])
    if dtype is None and code in NOT_GREY:
        raise InputError(f"{path}: voxels of type {NOT_GREY[code]} are not supported; convert to integers or float32")
    if dtype is None:
        raise InputError(f"{path} has an unknown voxel type (code {code})")
    if int(header["bitpix"]) not in (0, dtype.itemsize * 8):
        raise InputError(f"{path}: the header contradicts itself (type {dtype}, {int(header['bitpix'])} bits a voxel)")
    offset = float(header["vox_offset"])
    if not math.isfinite(offset) or offset != int(offset) or not (offset == 0 or 352 <= offset < 1 << 32):
        raise InputError(f"{path}: the voxels cannot start at byte {offset}; the header is damaged")
    return dtype, int(offset) or header.size + 4


def _check_size(path: Path, packed: bool, *, needed: int, held: int, budget: int) -> None:
    size = path.stat().st_size
    if needed > size * DEFLATE_LIMIT + 1024 if packed else needed > size:
        raise InputError(f"{path} is cut short or its header lies: it promises {needed:,} bytes, the file has {size:,}")
    if packed and held > BOMB_BYTES and held > size * BOMB_RATIO:
        raise InputError(
            f"{path} would grow from {size / 1e6:.1f} MB to {held / 1e9:.1f} GB, as a decompression bomb does; "
            "if it is genuine, unpack it with gunzip and use the .nii file"
        )
    if held > budget:
        remedy = "gunzip it first" if packed else "take a machine with more, or cut the scan"
        raise TooLarge(str(path), held, budget, remedy)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        got = len(stream.read(min(count, CHUNK)))
        if not got:
            raise EOFError("the voxels are missing")
        count -= got


def _fill(stream: IO[bytes], voxels: NDArray[Any]) -> None:
    target = memoryview(voxels.view(np.uint8))  # type: ignore[arg-type]
    at = 0
    while at < len(target):
        got = stream.readinto(target[at : at + CHUNK])  # type: ignore[attr-defined]
        if not got:
            raise EOFError(f"{len(target) - at:,} bytes of voxels are missing")
        at += got


def _affine(path: Path, header: Header) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Voxel to world, and what had to be mended.

    An sform whose columns all have length 1 where pixdim says otherwise has forgotten its scale: ACDC as the
    challenge ships it (nnUNet#2741).  Its directions are right, its millimetres are those of pixdim.
    """
    with np.errstate(all="ignore"):
        try:
            affine = header.affine()
        except ValueError as error:
            raise InputError(f"{path}: the orientation in the header is damaged ({error})") from error
        lengths = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
        pixdim = np.abs(np.asarray(header["pixdim"][1:4], np.float64))
    sane = np.isfinite(pixdim).all() and pixdim.min() > 0
    if sane and np.allclose(lengths, 1, atol=1e-4) and not np.allclose(pixdim, 1, rtol=0.01):
        affine[:3, :3] *= pixdim
        return affine, ("the header's matrix has no scale: millimetres are taken from pixdim",)
    return affine, ()


def _scaling(path: Path, header: Header) -> tuple[float, float]:
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or math.isnan(slope):  # the standard's way to say "not scaled"
        return 1.0, 0.0
    if not math.isfinite(slope) or not math.isfinite(intercept):
        raise InputError(f"{path}: the intensity scaling in the header is not finite")
    return slope, intercept
