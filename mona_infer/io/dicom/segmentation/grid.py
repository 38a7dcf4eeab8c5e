"""The regular grid of a DICOM Segmentation, from the positions of its frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from mona_infer.errors import InputError
from mona_infer.io.dicom.slice import Floats
from mona_infer.io.dicom.slice import _numbers as numbers
from mona_infer.io.dicom.slice import _optional as optional
from mona_infer.io.dicom.slice_order import COSINE, OFF_GRID, PIXEL, SAME_PLACE

MACROS = ("PixelMeasuresSequence", "PlaneOrientationSequence", "PlanePositionSequence")


@dataclass(frozen=True, eq=False)
class Grid:
    affine: Floats
    slices: int
    places: tuple[int, ...]  # the slice of each frame
    notes: tuple[str, ...]


def regular_grid(ds: Dataset, shared: Dataset, items: list[Dataset], name: str) -> Grid:
    """Slices along the normal from the lowest frame to the highest, including those that were left out."""
    groups = [
        [part[macro].value[0] for macro in MACROS for part in (item, shared) if part.get(macro)] for item in items
    ]
    first, where = groups[0], f"{name} frame 1"
    orientation, spacing = numbers(first, "ImageOrientationPatient", 6, where), numbers(first, "PixelSpacing", 2, where)
    positions = np.array(
        [numbers(group, "ImagePositionPatient", 3, f"{name} frame {n}") for n, group in enumerate(groups, start=1)]
    )
    for n, group in enumerate(groups, start=1):
        turned = np.abs(numbers(group, "ImageOrientationPatient", 6, name) - orientation).max() > COSINE
        if turned or not np.allclose(numbers(group, "PixelSpacing", 2, name), spacing, rtol=PIXEL, atol=0):
            raise InputError(
                f"{name}: frame {n} is rotated or scaled relative to frame 1; export them as separate files"
            )
    row, column = orientation.reshape(2, 3)
    normal = np.cross(row, column)
    if abs(np.linalg.norm(normal) - 1) > 2e-3 or spacing.min() <= 0:
        raise InputError(f"{name}: its orientation or pixel spacing is not a valid grid; export it again")
    heights = positions @ normal
    order = np.argsort(heights, kind="stable")
    plane = np.zeros(len(items), np.int64)  # the plane of each frame, counted from the lowest
    plane[order[1:]] = np.cumsum(np.diff(heights[order]) > SAME_PLACE)
    planes = positions[np.unique(plane, return_index=True)[1]]
    if np.linalg.norm(positions - planes[plane], axis=1).max() > SAME_PLACE:
        raise InputError(
            f"{name}: frames of the same plane are side by side (tiles), which is not supported; export whole slices"
        )
    notes: list[str] = []
    declared = [optional(first, keyword) for keyword in ("SpacingBetweenSlices", "SliceThickness")]
    between, thickness = (abs(value) if isinstance(value, float) and value else None for value in declared)
    if len(planes) == 1:
        if not between and not thickness:
            notes.append(f"{name} is a single slice without a thickness: assumed to be 1 mm thick")
        step, at = normal * (between or thickness or 1.0), np.zeros(1, np.int64)
    else:
        step, at = _step(planes, normal, between, _sources(ds), name)
    affine = np.eye(4)
    affine[:3] = np.stack([row * spacing[1], column * spacing[0], step, planes[0]], axis=1)
    affine[:2] *= -1  # DICOM's left and posterior become NIfTI's right and anterior
    return Grid(affine, int(at[-1]) + 1, tuple(int(n) for n in at[plane]), tuple(notes))


def _step(
    planes: Floats, normal: Floats, declared: float | None, sources: int, name: str
) -> tuple[Floats, NDArray[np.int64]]:
    """The step from one slice to the next, and the slice index of each plane.

    Two labelled neighbours are one step apart, so the smallest gap is the step, unless the file declares a smaller one
    that fits.  A declared step is used only if it gives no more slices than the file has source images: some writers
    always declare a SpacingBetweenSlices of 1 mm, whatever the positions say.
    """
    heights = planes @ normal
    smallest = float(np.diff(heights).min())
    for length in _candidates(smallest, declared):
        at = np.cumsum([0, *np.rint(np.diff(heights) / length)]).astype(np.int64)
        if length < smallest and sources > 1 and at[-1] >= sources:
            continue
        step: Floats = (planes[-1] - planes[0]) / at[-1]
        off = np.linalg.norm(planes - planes[0] - at[:, None] * step, axis=1)
        if (np.diff(at) > 0).all() and off.max() <= min(max(OFF_GRID, 0.01 * length), 0.2 * length):
            return step, at
    raise InputError(
        f"{name}: its frames are not evenly spaced (the smallest gap is {smallest:.3g} mm); resample it first"
    )


def _candidates(smallest: float, declared: float | None) -> Iterator[float]:
    if declared and 1e-4 < declared < 0.99 * smallest:
        yield declared
    yield from (smallest / n for n in range(1, 5))  # of gaps 2 and 3, the step is 1


def _sources(ds: Dataset) -> int:
    """How many images the segmentation was made from; 0 if it does not say."""
    return sum(
        len(series.get("ReferencedInstanceSequence") or ()) for series in ds.get("ReferencedSeriesSequence") or ()
    )
