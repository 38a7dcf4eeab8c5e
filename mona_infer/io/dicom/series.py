"""The series in a DICOM folder, zip or file, for `mona data series`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mona_infer.errors import MonaError
from mona_infer.io.dicom.frame_times import interval
from mona_infer.io.dicom.header import Header, read_headers
from mona_infer.io.dicom.read import _ONE_AT_A_TIME, _quiet, slices_in, without_copies
from mona_infer.io.dicom.series_choice import by_series
from mona_infer.io.dicom.slice import printable
from mona_infer.io.dicom.slice_order import arrange
from mona_infer.io.dicom.source import files_at


@dataclass(frozen=True)
class Series:
    """One series; if it cannot be read as a volume, `problem` says why and its geometry is unknown."""

    number: str
    description: str
    modality: str
    uid: str
    files: int
    columns: int
    rows: int
    slices: int | None = None
    frames: int | None = None
    spacing: tuple[float, float, float] | None = None  # mm along a row, down a column, from slice to slice
    frame_interval_ms: float | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None


def list_series(path: Path, budget: int) -> tuple[list[Series], list[str]]:
    """Every series, sorted by number, and notes on skipped files; only headers are read."""
    with files_at(path, budget) as files, _ONE_AT_A_TIME, _quiet():
        headers, damaged, passed_over = read_headers(files, path, budget)
        found = [_series(group, path, budget) for group in by_series(headers).values()]
    ranked = sorted(found, key=lambda one: (int(one.number) if one.number.isdecimal() else 1 << 31, one.uid))
    return ranked, [*passed_over, *(str(file.error) for file in damaged)]


def _series(headers: list[Header], path: Path, budget: int) -> Series:
    first = headers[0]
    uid, number, description = first.labels
    size = [int(first.tags.get(keyword) or 0) for keyword in ("Columns", "Rows")]
    about: dict[str, Any] = {"number": number, "description": description, "modality": first.modality, "uid": uid}
    about["files"] = len(headers)
    try:
        kept, copies = without_copies(headers, budget)
        slices, padded = slices_in(kept, budget)
        stack = arrange(slices, 0, printable(path))
    except MonaError as error:  # reported for this series only; the others are still listed
        return Series(**about, columns=size[0], rows=size[1], problem=str(error))
    step = interval(stack.times)
    rows, columns = stack.slices[0].size  # for a mosaic, those of a tile
    spacing = np.linalg.norm(stack.affine[:3, :3], axis=0).round(6)
    return Series(
        **about,
        columns=columns,
        rows=rows,
        slices=len(stack.slices),
        frames=stack.frames,
        spacing=(float(spacing[0]), float(spacing[1]), float(spacing[2])),
        frame_interval_ms=None if step is None else round(1e3 * step, 3),
        notes=(*copies, *padded, *(note for note in stack.notes if not note.startswith("frame "))),
    )
