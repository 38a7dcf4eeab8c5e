"""Reading MetaImage: .mha, and .mhd with its .raw or .zraw, as ITK, elastix and plastimatch write them.

Our own reader: SimpleITK takes 264 MB of disk and 0.2 s to import, as long as all of `mona --help`.
https://itk.org/Wiki/ITK/MetaIO/Documentation
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.scan_file import ScanFile
from mona_infer.io.stored_voxels import Stored, as_input_error
from mona_infer.io.text_header import MILLIMETRES, NO_ORIENTATION, header_lines, numbers, ras_affine, sizes, voxel_file

TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4", "MET_UINT": "u4",
    "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8",# LONG is four bytes in MetaIO
    "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
LPS = (-1, -1, 1)


def open_metaimage(path: Path) -> ScanFile:
    with as_input_error(path), path.open("rb") as stream:
        fields: dict[str, str] = {}
        for line in header_lines(path, stream, "MetaImage"):
            name, equals, value = line.partition("=")
            if not equals:
                if line.strip():
                    raise InputError(
                        f"{path} is not MetaImage, or is damaged: expected 'Name = value', found {line[:60]!r}"
                    )
                continue
            fields[name.strip().lower()] = value.strip()
            if name.strip().lower() == "elementdatafile":  # the last line: what follows may be voxels
                break
        local = stream.tell()
    for name in ("NDims", "DimSize", "ElementType", "ElementDataFile"):
        if name.lower() not in fields:
            raise InputError(f"{path} is not MetaImage, or is truncated: its header has no {name}")
    rank = numbers(path, "NDims", fields["ndims"], int, 1)[0]
    if rank not in (3, 4):
        raise InputError(f"{path}: expected a 3-D or 4-D volume, the header says {rank} dimensions")
    extents = sizes(path, "DimSize", fields["dimsize"], rank)
    affine, notes = _affine(path, fields, rank)
    shape, frames = (extents[0], extents[1], extents[2]), extents[3] if rank == 4 else 1
    return ScanFile(path, _stored(path, fields, local, shape, frames), affine, notes=notes)


@np.errstate(invalid="ignore", over="ignore")  # what is not finite is refused by Volume
def _affine(path: Path, fields: dict[str, str], rank: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Row n of TransformMatrix is the direction of axis n."""

    def first(*names: str) -> str | None:
        return next((fields[name] for name in names if name in fields), None)

    notes = []
    matrix, origin = first("transformmatrix", "rotation", "orientation"), first("offset", "position", "origin")
    spacing = first("elementspacing", "elementsize")
    turn = np.eye(rank)
    if matrix is not None:
        turn = np.array(numbers(path, "TransformMatrix", matrix, float, rank * rank)).reshape(rank, rank)
    else:
        notes.append(NO_ORIENTATION)
    if turn[3:, :3].any() or turn[:3, 3:].any():
        raise InputError(f"{path}: the fourth axis must be time, but TransformMatrix mixes it with space")
    if spacing is None:
        notes.append("the header has no spacing: 1 mm is assumed")
    steps = turn * np.array(numbers(path, "ElementSpacing", spacing or "1 " * rank, float, rank))[:, None]
    start = np.array(numbers(path, "Offset", origin or "0 " * rank, float, rank))
    unit = fields.get("distanceunits", "mm").lower()
    factor = MILLIMETRES.get(unit, 1.0)
    if factor != 1:
        notes.append(f"the header gives lengths in {unit}; they were converted to millimetres")
    return ras_affine(steps[:3, :3] * factor, start[:3] * factor, LPS), tuple(notes)


def _stored(path: Path, fields: dict[str, str], local: int, shape: tuple[int, int, int], frames: int) -> Stored:
    def says(*names: str, default: bool = False) -> bool:
        found = next((fields[name] for name in names if name in fields), None)
        return default if found is None else found[:1].lower() in ("t", "1", "y")

    kind, name = fields["elementtype"].upper(), fields["elementdatafile"]
    if kind not in TYPES:
        raise InputError(f"{path}: voxels of type {kind} are not supported; convert to integers or float")
    channels = fields.get("elementnumberofchannels", "1")
    if channels != "1":
        raise InputError(
            f"{path} has {channels} values per voxel (colour or a vector); convert to one grey value per voxel"
        )
    if not says("binarydata", default=True):
        raise InputError(f"{path}: its voxels are stored as text (BinaryData = False); save it as binary")
    if name.upper().startswith("LIST") or "%" in name:
        raise InputError(f"{path} stores its voxels in several files ({name!r}); save it as one .mha file")
    where, begin = (path, local) if name.upper() == "LOCAL" else (voxel_file(path, name), 0)
    big = says("binarydatabyteordermsb", "elementbyteordermsb")
    dtype = np.dtype(TYPES[kind]).newbyteorder(">" if big else "<")
    packing = "zlib" if says("compresseddata") else "raw"
    skip = numbers(path, "HeaderSize", fields.get("headersize", "0"), int, 1)[0]
    with as_input_error(where):
        if skip == -1 and packing == "raw":  # the voxels are at the end of the file, whatever comes before
            begin, skip = max(0, where.stat().st_size - math.prod(shape) * frames * dtype.itemsize), 0
        elif skip < 0:
            raise InputError(f"{path}: HeaderSize {skip} is not valid")
        if packing == "zlib":
            begin, skip = begin + skip, 0
            with where.open("rb") as stream:
                stream.seek(begin)
                packing = "gzip" if stream.read(2) == b"\x1f\x8b" else "zlib"  # MetaIO reads both
    return Stored(where, dtype, shape, frames, packing, begin, skip)
