"""The frames of a DICOM Segmentation as arrays, after checking their declared size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import UID, RLELossless

from mona_infer.errors import InputError
from mona_infer.io.dicom.slice import printable


def planes_of(ds: Dataset, name: str) -> Iterator[NDArray[Any]]:
    """The values of each frame, rows x columns; sizes are checked before the first frame is read."""
    rows, columns, bits = (int(ds.get(keyword) or 0) for keyword in ("Rows", "Columns", "BitsAllocated"))
    frames = int(ds.get("NumberOfFrames") or 1)
    if min(rows, columns) < 1 or bits not in (1, 8, 16) or int(ds.get("SamplesPerPixel") or 1) != 1:
        raise InputError(
            f"{name}: {rows}x{columns} pixels of {bits} bits cannot be read as a segmentation; expected 1, 8 or 16 bits"
        )
    syntax = UID(ds.file_meta.get("TransferSyntaxUID", ""))
    data = ds.get("PixelData") or b""
    if syntax.is_encapsulated:
        # Unlike other codecs, run-length encoding has no size of its own that could contradict the header.
        if syntax != RLELossless or bits == 1:
            raise InputError(
                f"{name}: its pixels are compressed as {printable(syntax.name)}, which is not supported in a "
                "segmentation; export it uncompressed"
            )
        return iter_pixels(ds, raw=True, decoding_plugin="pydicom")
    need = -(-rows * columns * frames * bits // 8)
    if len(data) < need:
        raise InputError(
            f"{name}: {frames} frame(s) of {rows}x{columns} need {need} bytes of pixels, found {len(data)}; "
            "copy or export it again"
        )
    little = bool(ds.original_encoding[1])
    if bits == 1:
        if not little:
            raise InputError(f"{name}: single bits in big endian cannot be read; export it as little endian")
        return _bits(data, frames, rows, columns)
    stored = np.frombuffer(data, np.dtype(f"{'<' if little else '>'}u{bits // 8}"), frames * rows * columns)
    return iter(stored.reshape(frames, rows, columns))


def _bits(data: bytes, frames: int, rows: int, columns: int) -> Iterator[NDArray[Any]]:
    """PS3.5 8.1.1: the first pixel is the lowest bit, and frames follow each other without padding."""
    count, stored = rows * columns, np.frombuffer(data, np.uint8)
    for frame in range(frames):
        start = frame * count
        some = np.unpackbits(stored[start // 8 : -(-(start + count) // 8)], bitorder="little")
        yield some[start % 8 : start % 8 + count].reshape(rows, columns)
