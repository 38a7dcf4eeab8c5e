"""Reading NRRD: raw and gzip, attached (.nrrd) and detached (.nhdr), including 3D Slicer's .seg.nrrd.

Our own reader: pynrrd reads the whole array before any check of its size, follows the path of a data file anywhere, and
leaves orientation and units to its caller.  https://teem.sourceforge.net/nrrd/format.html
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.scan_file import ScanFile
from mona_infer.io.stored_voxels import Stored, as_input_error
from mona_infer.io.text_header import MILLIMETRES, NO_ORIENTATION, header_lines, numbers, ras_affine, sizes, voxel_file

SYNONYMS = {
    "i1": "signed char|int8|int8_t", "u1": "uchar|unsigned char|uint8|uint8_t",
    "i2": "short|short int|signed short|signed short int|int16|int16_t",
    "u2": "ushort|unsigned short|unsigned short int|uint16|uint16_t",
    "i4": "int|signed int|int32|int32_t", "u4": "uint|unsigned int|uint32|uint32_t",
    "i8": "longlong|long long|long long int|signed long long|signed long long int|int64|int64_t",
    "u8": "ulonglong|unsigned long long|unsigned long long int|uint64|uint64_t",
    "f4": "float", "f8": "double",
}  # fmt: skip
TYPES = {name: code for code, names in SYNONYMS.items() for name in names.split("|")}
PACKINGS = {"raw": "raw", "gzip": "gzip", "gz": "gzip"}
LPS, RAS, LAS = "left-posterior-superior", "right-anterior-superior", "left-anterior-superior"
SPACES = {LPS: (-1, -1, 1), "lps": (-1, -1, 1), RAS: (1, 1, 1), "ras": (1, 1, 1), LAS: (-1, 1, 1), "las": (-1, 1, 1)}
SPATIAL = ("domain", "space")
FRAMES = ("list", "time", "vector", "???", "none", *SPATIAL)  # kinds that a fourth axis may have
VECTOR = re.compile(r"none|\([^()]*\)")
Fields = dict[str, str]  # keyed by lower-case name without blanks; "key:=value" pairs by "key:="


def open_nrrd(path: Path) -> ScanFile:
    with as_input_error(path), path.open("rb") as stream:
        fields = _fields(path, header_lines(path, stream, "NRRD"))
        attached = stream.tell()
    rank = numbers(path, "dimension", fields.get("dimension", ""), int, 1)[0]
    if rank not in (3, 4):
        raise InputError(f"{path}: expected a 3-D or 4-D volume, the header says {rank} dimensions")
    extents = sizes(path, "sizes", fields.get("sizes", ""), rank)
    directions, origin = _space(path, fields, rank)
    frame_axis = _frame_axis(path, fields, extents, directions)
    space = [axis for axis in range(rank) if axis != frame_axis]
    affine, notes = _affine(path, fields, space, directions, origin)
    frames = 1 if frame_axis is None else extents[frame_axis]
    if frames > 1 and "segment0_id:=" in fields:
        raise InputError(
            f"{path} has overlapping segments in {frames} layers, but a label map has one label per voxel; "
            "export it from 3D Slicer as a label map"
        )
    shape = (extents[space[0]], extents[space[1]], extents[space[2]])
    stored = _stored(path, fields, attached, shape, frames, interleaved=frame_axis == 0 and frames > 1)
    return ScanFile(path, stored, affine, notes=notes)


def _fields(path: Path, lines: Any) -> Fields:
    """Up to the first empty line, or the end of the file if the voxels are in another one."""
    if not re.fullmatch(r"NRRD000[1-5]", next(lines)[:9].rstrip()):
        raise InputError(f"{path} is not NRRD: it does not begin with NRRD0001 ... NRRD0005")
    fields: Fields = {}
    for line in lines:
        if not line:
            return fields
        if line.startswith("#"):
            continue
        pair, field = line.find(":="), line.find(": ")
        if pair >= 0 and (field < 0 or pair < field):
            fields[f"{line[:pair].lower()}:="] = line[pair + 2 :]
        else:
            name, colon, value = line.partition(":")
            if not colon:
                raise InputError(f"{path}: the header is damaged at {line[:60]!r}")
            fields[name.lower().replace(" ", "")] = value.strip()
    if "datafile" not in fields:
        raise InputError(f"{path} is truncated: its header does not end, so there are no voxels")
    return fields


def _space(path: Path, fields: Fields, rank: int) -> tuple[list[NDArray[np.float64] | None], NDArray[np.float64]]:
    """The step along each axis in space, None for an axis without a direction; and the position of the first voxel."""
    if "spacedirections" not in fields:
        return [None] * rank, np.zeros(3)
    vectors = VECTOR.findall(fields["spacedirections"])
    if len(vectors) != rank:
        raise InputError(f"{path}: expected {rank} space directions, found {fields['spacedirections'][:80]!r}")
    steps = [None if vector == "none" else _vector(path, vector) for vector in vectors]
    known = [step for step in steps if step is not None]
    origin = (
        _vector(path, fields["spaceorigin"]) if "spaceorigin" in fields else np.zeros(len(known[0]) if known else 3)
    )
    four = len(known) == 4 and len(origin) == 4 and all(len(step) == 4 for step in known)
    if four and not known[3][:3].any() and not any(step[3] for step in known[:3]):
        return [*(step[:3] for step in known[:3]), None], origin[:3]  # ITK's 4-D files: the fourth is time
    if not known or any(len(vector) != 3 for vector in (*known, origin)):
        raise InputError(
            f"{path}: expected space directions of three numbers, found {fields['spacedirections'][:80]!r}"
        )
    return steps, origin


def _vector(path: Path, text: str) -> NDArray[np.float64]:
    inside = text.strip().strip("()").replace(",", " ")
    return np.array(numbers(path, "space directions or origin", inside, float, len(inside.split())))


def _frame_axis(path: Path, fields: Fields, extents: list[int], directions: list[Any]) -> int | None:
    """Which of four axes counts frames: the one without a direction, or of a different kind than the others."""
    kinds = fields.get("kinds", "").split() or ["domain"] * len(extents)
    if len(extents) == 3:
        odd = [kind for kind in kinds if kind not in (*SPATIAL, "???", "none")]
        if odd or sum(step is None for step in directions) in (1, 2):
            raise InputError(
                f"{path}: expected a 3-D volume, found a 2-D one with an axis of kind {(odd or ['none'])[0]}"
            )
        return None
    apart = [axis for axis, step in enumerate(directions) if step is None]
    if len(apart) == 4:
        apart = [axis for axis, kind in enumerate(kinds) if kind not in SPATIAL] or [3]
    if len(apart) != 1 or len(kinds) != 4:
        raise InputError(f"{path}: three of its four axes must be spatial, found kinds {fields.get('kinds')!r}")
    (axis,) = apart
    if kinds[axis] not in FRAMES and extents[axis] > 1:
        raise InputError(f"{path}: {kinds[axis]} voxels are not supported; convert to one grey value per voxel")
    if axis not in (0, 3) and extents[axis] > 1:
        raise InputError(
            f"{path}: its frames are along axis {axis} (of 0..3); they must be along the first or the last"
        )
    return axis


@np.errstate(invalid="ignore", over="ignore")  # what is not finite is refused by Volume
def _affine(
    path: Path, fields: Fields, space: list[int], directions: list[Any], origin: NDArray[np.float64]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    notes = []
    name = fields.get("space", "").lower()
    signs = SPACES.get(name.removesuffix("-time"), (-1, -1, 1))
    if directions[space[0]] is None:
        rank = len(directions)
        spacing = numbers(path, "spacings", fields["spacings"], float, rank) if "spacings" in fields else [1.0] * rank
        steps = np.diag([spacing[axis] for axis in space])
        if "axismins" in fields:
            mins = numbers(path, "axis mins", fields["axismins"], float, rank)
            kinds = fields.get("centerings", fields.get("centers", "")).split()
            inset = [
                0 if kinds[axis : axis + 1] == ["node"] else spacing[axis] / 2 for axis in space
            ]  # to the centre of a cell
            origin = np.array([mins[axis] for axis in space]) + inset
        notes.append(NO_ORIENTATION + ("" if "spacings" in fields else "; it has no spacing either: 1 mm is assumed"))
        units = re.findall(r'"([^"]*)"', fields.get("units", ""))
        units = [units[axis] for axis in space] if len(units) == rank else []
    else:
        steps = np.array([directions[axis] for axis in space])
        if name.removesuffix("-time") not in SPACES:
            space_name = name or "no name"
            notes.append(f"its space ({space_name}) does not give the patient's orientation: assumed {LPS}, as in ITK")
        units = re.findall(r'"([^"]*)"', fields.get("spaceunits", ""))[:3]
    factors = [MILLIMETRES.get(unit.lower(), 1.0) for unit in units]
    if len(factors) == 3 and set(factors) != {1.0}:
        steps, origin = steps * factors, origin * factors
        notes.append(f"the header gives lengths in {units[0]}; they were converted to millimetres")
    return ras_affine(steps, origin, signs), tuple(notes)


def _stored(
    path: Path, fields: Fields, attached: int, shape: tuple[int, int, int], frames: int, *, interleaved: bool
) -> Stored:
    kind, encoding = fields.get("type", "").lower(), fields.get("encoding", "").lower()
    if kind not in TYPES:
        raise InputError(f"{path}: voxels of type {kind!r} are not supported; convert to integers or float")
    if encoding not in PACKINGS:
        raise InputError(
            f"{path}: the encoding {encoding!r} is not supported, only raw and gzip; save it as one of these"
        )
    dtype = np.dtype(TYPES[kind])
    endian = fields.get("endian", "").lower()
    if dtype.itemsize > 1 and endian not in ("little", "big"):
        raise InputError(f"{path}: expected 'endian: little' or 'endian: big', the header says {endian!r}")
    where, begin = path, attached
    if "datafile" in fields:
        name = fields["datafile"]
        if name.upper().startswith("LIST") or re.search(r"%\d*d", name):
            raise InputError(f"{path} stores its voxels in several files ({name!r}); save it as one .nrrd file")
        where, begin = voxel_file(path, name), 0
    lines = numbers(path, "line skip", fields.get("lineskip", "0"), int, 1)[0]
    skip = numbers(path, "byte skip", fields.get("byteskip", "0"), int, 1)[0]
    if lines > 0:
        with as_input_error(where), where.open("rb") as stream:
            stream.seek(begin)
            for _ in zip(range(lines), header_lines(where, stream, "NRRD"), strict=False):
                pass
            begin = stream.tell()
    packing = PACKINGS[encoding]
    if skip == -1 and packing == "raw":  # the voxels are at the end of the file, whatever comes before
        begin, skip = max(0, where.stat().st_size - math.prod(shape) * frames * dtype.itemsize), 0
    if skip < 0 or lines < 0:
        raise InputError(f"{path}: byte skip and line skip must be 0 or greater, found {min(skip, lines)}")
    dtype = dtype.newbyteorder(">" if endian == "big" else "<")
    return Stored(where, dtype, shape, frames, packing, begin, skip, interleaved)
