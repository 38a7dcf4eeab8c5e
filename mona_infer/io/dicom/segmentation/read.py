"""Read a DICOM Segmentation (PS3.3 A.51) or label map (A.86) as a `Volume` of label ids, with pydicom alone.

Frames may come in any order, and empty ones are usually left out.  So the volume has the slices from the first frame to
the last, evenly spaced, and is marked as `sparse`; `mona_infer.geometry.align` puts it on a complete grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.filereader import read_file_meta_info

from mona_infer.errors import InputError
from mona_infer.io.dicom.read import _ONE_AT_A_TIME, _quiet
from mona_infer.io.dicom.segmentation.grid import Grid, regular_grid
from mona_infer.io.dicom.segmentation.pixels import planes_of
from mona_infer.io.dicom.slice import printable
from mona_infer.io.dicom.source import as_input_error, files_at, opened
from mona_infer.system.memory_budget import TooLarge
from mona_infer.volume import Volume

KINDS = {  # SOP class -> the values of SegmentationType it may have
    "1.2.840.10008.5.1.4.1.1.66.4": ("BINARY", "FRACTIONAL"),
    "1.2.840.10008.5.1.4.1.1.66.7": ("LABELMAP",),
}
# How mona records the id of a class in its Task, because segments must be numbered from 1.
LABEL_ID = "mona label id {}"
HALF = 0.5  # of MaximumFractionalValue: from this value on, a voxel belongs to a FRACTIONAL segment


@dataclass(frozen=True)
class _Segment:
    id: int
    name: str


def find_seg(path: Path) -> Path | None:
    """`path` itself, or the only file in it, if that is a DICOM Segmentation; else None."""
    if path.is_dir():
        files = [file for file in path.iterdir() if not file.name.startswith(".")]
        if len(files) != 1:
            return None
        (path,) = files
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            if stream.read(132)[128:] != b"DICM":
                return None
        return path if str(read_file_meta_info(path).get("MediaStorageSOPClassUID")) in KINDS else None
    except Exception:  # damaged: reading it as a scan will report how
        return None


def read_seg(path: Path, *, budget: int, beside: int = 0) -> Volume:
    """The segments as label ids: the segment's number or, in a file written by mona, the id of the Task's class."""
    name = printable(path)
    with (
        files_at(path, budget) as (file,),
        _ONE_AT_A_TIME,
        _quiet(),
        as_input_error(name),
        opened(file, budget) as stream,
    ):
        assert stream is not None  # find_seg checked its prefix
        ds = dcmread(stream)
        kind = printable(ds.get("SegmentationType"))
        if kind not in KINDS.get(str(ds.get("SOPClassUID")), ()):
            raise InputError(
                f"{name}: its SegmentationType is {kind or 'missing'}; expected BINARY, FRACTIONAL or LABELMAP"
            )
        segments = _segments(ds, name)
        frames = int(ds.get("NumberOfFrames") or 1)
        items = list(ds.get("PerFrameFunctionalGroupsSequence") or ())
        if len(items) != frames:
            raise InputError(f"{name} has {frames} frame(s) but positions for {len(items)}; export it again")
        shared = next(iter(ds.get("SharedFunctionalGroupsSequence") or ()), Dataset())
        grid = regular_grid(ds, shared, items, name)
        return _volume(ds, kind, segments, _numbers(kind, shared, items, segments, name), grid, path, budget, beside)


def _segments(ds: Dataset, name: str) -> dict[int, _Segment]:
    """By number.  A segment that was not written by mona uses its number as its id."""
    segments: dict[int, _Segment] = {}
    for item in ds.get("SegmentSequence") or ():
        number, label = int(item.SegmentNumber), printable(item.get("SegmentLabel"))
        if number == 0:  # a label map may describe its background (PS3.3 C.8.20.4)
            continue
        note = re.fullmatch(LABEL_ID.format(r"(\d{1,5})"), str(item.get("SegmentDescription") or "").strip())
        if not label or label in {s.name for s in segments.values()}:
            label = f"{label or 'segment'} {number}"  # names must be distinct in tables
        segment = _Segment(int(note[1]) if note else number, label)
        twin = segments.get(number) or next((s for s in segments.values() if s.id == segment.id), None)
        if twin is not None or not 0 < segment.id <= 65535:
            raise InputError(f"{name}: segment {number} {label!r} does not have a label id of its own; export it again")
        segments[number] = segment
    if not segments:
        raise InputError(f"{name} has no segments (SegmentSequence); export it again")
    return segments


def _numbers(
    kind: str, shared: Dataset, items: list[Dataset], segments: Mapping[int, _Segment], name: str
) -> list[int | None]:
    """The segment that each frame shows; None for a label map, whose frames show all segments."""
    if kind == "LABELMAP":
        return [None] * len(items)
    numbers: list[int | None] = []
    for n, item in enumerate(items, start=1):
        group = item.get("SegmentIdentificationSequence") or shared.get("SegmentIdentificationSequence")
        number = int(group[0].ReferencedSegmentNumber) if group else None
        if number not in segments:
            raise InputError(f"{name}: frame {n} shows segment {number}, which is not described; export it again")
        numbers.append(number)
    return numbers


def _volume(
    ds: Dataset,
    kind: str,
    segments: Mapping[int, _Segment],
    numbers: list[int | None],
    grid: Grid,
    path: Path,
    budget: int,
    beside: int,
) -> Volume:
    name, rows, columns = printable(path), int(ds.Rows), int(ds.Columns)
    dtype = np.dtype(np.uint8 if max(s.id for s in segments.values()) < 256 else np.uint16)
    need = rows * columns * grid.slices * (dtype.itemsize + beside)
    if need > budget:
        what = f"{name} ({columns}x{rows}x{grid.slices} voxels)"
        raise TooLarge(what, need, budget, "use a machine with more memory, or a smaller segmentation")
    planes = planes_of(ds, name)  # checks the length of the pixels
    voxels = np.zeros((columns, rows, grid.slices), dtype, order="F")
    shown_in: dict[tuple[int, int | None], int] = {}
    for n, (number, k, labels) in enumerate(
        zip(numbers, grid.places, _labels(ds, kind, segments, numbers, planes, name), strict=True), start=1
    ):
        twin = shown_in.setdefault((k, number), n)
        if twin != n:
            what = "the same slice" if number is None else f"segment {number} of the same slice"
            raise InputError(f"{name}: frames {twin} and {n} show {what}; only one time point can be read")
        plane = voxels[:, :, k].T
        both = (plane != 0) & (labels != 0)
        if both.any():
            first, second = (
                next(s.name for s in segments.values() if s.id == layer[both][0]) for layer in (plane, labels)
            )
            raise InputError(
                f"{name}: segments {first!r} and {second!r} overlap ({int(both.sum())} voxels of frame {n}), "
                "but a mask has one class per voxel; export them as separate files"
            )
        plane += labels.astype(dtype)
    notes = list(grid.notes)
    if kind == "FRACTIONAL":
        notes.append(f"{name} is FRACTIONAL: voxels with at least {HALF:.0%} of a segment count as that segment")
    return Volume(
        voxels,
        grid.affine,
        source=str(path),
        modality="SEG",
        notes=tuple(notes),
        names={s.id: s.name for s in segments.values()},
        sparse=True,
    )


def _labels(
    ds: Dataset,
    kind: str,
    segments: Mapping[int, _Segment],
    numbers: list[int | None],
    planes: Iterator[NDArray[Any]],
    name: str,
) -> Iterator[NDArray[np.uint16]]:
    """The label ids of every frame (rows x columns)."""
    table = np.zeros(65536, np.uint16)
    for number, segment in segments.items():
        table[number] = segment.id
    background = (0, int(ds.get("PixelPaddingValue") or 0))
    top = float(ds.get("MaximumFractionalValue") or 255)
    for n, (of, plane) in enumerate(zip(numbers, planes, strict=True), start=1):
        if of is not None:
            inside = plane >= HALF * top if kind == "FRACTIONAL" else plane != 0
            yield inside * table[of]
            continue
        ids = table[plane]
        unknown = (ids == 0) & ~np.isin(plane, background)
        if unknown.any():
            raise InputError(
                f"{name}: frame {n} holds {plane[unknown][0]}, which no segment describes; export it again"
            )
        yield np.where(np.isin(plane, background), np.uint16(0), ids)
