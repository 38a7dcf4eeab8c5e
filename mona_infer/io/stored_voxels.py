"""Voxels as stored in files, raw or compressed, read frame by frame into arrays of the stored dtype.

Nothing is allocated before the size in the header has been checked against the file and the memory budget.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from isal import igzip, isal_zlib
from isal.isal_zlib import IsalError
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.decompression_bombs import refuse_bomb
from mona_infer.system.memory_budget import TooLarge

DEFLATE_LIMIT = 1032  # deflate cannot compress more than this: a header that claims more is wrong
CHUNK = 4 << 20


@dataclass(frozen=True)
class Stored:
    """How voxels are stored, according to a header; the first index of `shape` varies fastest, frames slowest."""

    path: Path  # the file with the voxels
    dtype: np.dtype[Any]
    shape: tuple[int, int, int]
    frames: int = 1
    packing: str = "raw"  # or "gzip", "zlib"
    begin: int = 0  # the byte in the file where the (compressed) voxels start
    skip: int = 0  # uncompressed bytes between there and the first voxel
    interleaved: bool = False  # frames vary fastest: all values of a voxel are stored together

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def frame_index(path: Path, frames: int, frame: int | None) -> int:
    if frame is None and frames > 1:
        raise InputError(
            f"{path} has {frames} frames; choose one with --frame 0..{frames - 1} (or, for mona segment, all)"
        )
    if frame is not None and not 0 <= frame < frames:
        raise InputError(f"{path} has {frames} frame(s), numbered from 0; there is no frame {frame}")
    return frame or 0


def read_frames(stored: Stored, chosen: Sequence[int], *, budget: int, beside: int = 0) -> Iterator[NDArray[Any]]:
    """The chosen frames (i j k), in ascending order, so that a compressed file is unpacked only once.

    Uncompressed voxels are memory-mapped.  At most `budget` bytes are allocated, including `beside` bytes per voxel
    that the caller will need.
    """
    _check_size(stored, last=chosen[-1], budget=budget, beside=beside)
    with as_input_error(stored.path):
        if stored.interleaved:
            whole = _all_values(stored)
            yield from (whole[index] for index in chosen)
        elif stored.packing == "raw":
            for index in chosen:
                yield _mapped(stored, index * stored.frame_bytes, stored.shape)
        else:
            yield from _unpacked(stored, chosen)


def _unpacked(stored: Stored, chosen: Sequence[int]) -> Iterator[NDArray[Any]]:
    with open_packed(stored.path, stored.packing, stored.begin) as stream:
        at = 0
        for index in chosen:
            start = stored.skip + index * stored.frame_bytes
            voxels = np.empty(math.prod(stored.shape), stored.dtype)
            _skip(stream, start - at)
            _fill(stream, voxels)
            at = start + stored.frame_bytes
            if index == stored.frames - 1:
                stream.read(CHUNK)  # reading to the end verifies the checksum
            yield voxels.reshape(stored.shape, order="F")
            del voxels  # or it would stay in memory while the next is read


def _all_values(stored: Stored) -> NDArray[Any]:
    """Frame, i, j, k."""
    shape = (stored.frames, *stored.shape)
    if stored.packing == "raw":
        return _mapped(stored, 0, shape)
    values = np.empty(math.prod(shape), stored.dtype)
    with open_packed(stored.path, stored.packing, stored.begin) as stream:
        _skip(stream, stored.skip)
        _fill(stream, values)
        stream.read(CHUNK)
    return values.reshape(shape, order="F")


def _mapped(stored: Stored, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    start = stored.begin + stored.skip + offset
    return np.memmap(stored.path, stored.dtype, "r", offset=start, shape=shape, order="F")


def open_packed(path: Path, packing: str, begin: int = 0) -> IO[bytes]:
    """A stream of the uncompressed bytes of a file from byte `begin` on."""
    file = path.open("rb")
    file.seek(begin)
    if packing == "raw":
        return file
    if packing == "gzip":
        return cast(IO[bytes], _Gzip(fileobj=file, mode="rb"))
    return cast(IO[bytes], io.BufferedReader(_Zlib(file), 1 << 18))


def first_bytes(path: Path, packing: str, count: int) -> bytes:
    """The first uncompressed bytes, or fewer if the file is shorter, without reading the rest."""
    if packing == "gzip":
        with path.open("rb", buffering=0) as file, contextlib.suppress(zlib.error):
            found = zlib.decompressobj(31).decompress(file.read(1 << 12), count)  # 31: with gzip's header
            if len(found) == count:
                return found
    with open_packed(path, packing) as stream:  # raises the right error if something is wrong
        return stream.read(count)


class _Gzip(igzip.IGzipFile):  # type: ignore[misc]  # isal has no types
    """Also closes the underlying file, which gzip leaves open if it did not open it."""

    def close(self) -> None:
        file = self.fileobj
        super().close()
        if file is not None:
            file.close()


class _Zlib(io.RawIOBase):
    """A zlib stream inside a file, as MetaImage has it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._engine = file, isal_zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._engine.eof:
            packed = self._engine.unconsumed_tail or self._file.read(1 << 18)
            if not packed:
                raise EOFError("the compressed stream ends early")
            got = self._engine.decompress(packed, len(target))
            if got:
                target[: len(got)] = got
                return len(got)
        return 0

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def as_input_error(path: Path) -> Iterator[None]:
    """Turn errors from a damaged or unreadable file into an InputError."""
    try:
        yield
    except (EOFError, zlib.error, IsalError, gzip.BadGzipFile) as error:  # type: ignore[misc]  # isal has no types
        raise InputError(f"{path} is damaged or truncated ({error}); get a fresh copy") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _check_size(stored: Stored, *, last: int, budget: int, beside: int) -> None:
    """Before anything is allocated, check the size in the header against the file, then against the memory budget."""
    path, packed = stored.path, stored.packing != "raw"
    values = math.prod(stored.shape)
    arrays = stored.frames if stored.interleaved else 1
    needed = stored.skip + (stored.frames if stored.interleaved else last + 1) * stored.frame_bytes
    held = values * ((arrays * stored.dtype.itemsize if packed else 0) + beside)
    with as_input_error(path):
        size = path.stat().st_size
    inside = max(0, size - stored.begin)
    if needed > inside * DEFLATE_LIMIT + 1024 if packed else needed > inside:
        raise InputError(
            f"{path} is truncated or its header is wrong: expected {stored.begin + needed:,} bytes, found {size:,}"
        )
    if packed:
        refuse_bomb(path, size, held, _uncompressed(path))
    if held > budget:
        remedy = f"{_uncompressed(path)}" if packed else "use a machine with more memory, or crop the scan"
        raise TooLarge(str(path), held, budget, remedy)


def _uncompressed(path: Path) -> str:
    if path.name.lower().endswith(".gz"):
        return "unpack it with gunzip and use the .nii file"
    return "save it uncompressed"


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
