"""C++ on NumPy arrays: resampling, argmax at native size, and what is done to label maps: post-processing, distances.

Does not need torch.  `threads=0` means every core that this process may use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_kernels import _native
from mona_kernels.taps import Taps, taps

Labels = NDArray[np.unsignedinteger[Any]]  # uint8 or uint16
# Millimetres between voxels along each axis; or, if the axes may not be orthogonal, the step along each axis (a row).
Spacing = tuple[float, float, float] | NDArray[np.float64]
RIGHT_ANGLE = np.sin(np.radians(0.1))  # axes within 0.1 degree of it count as orthogonal, because headers are rounded


def cores() -> int:
    """How many cores this process may use (the container's limit, not the machine's)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_of_thread = threading.local()


def use_one_thread() -> None:
    """Loops that the calling thread starts from now on stay on it: for pools whose threads fill the cores already."""
    _of_thread.threads = 1


def _count(threads: int) -> int:
    return threads or getattr(_of_thread, "threads", 0) or cores()


def resize(slices: NDArray[Any], size: tuple[int, int], *, order: int, threads: int = 0) -> NDArray[Any]:
    """Resize slices (n, h, w) to (n, *size) with aligned corners, as scipy.ndimage.zoom of order 0 or 1 does.

    Order 0 keeps the dtype (uint8, uint16, int16, float32); order 1 takes and returns float32.
    """
    if slices.ndim != 3 or 0 in slices.shape or min(size) < 1:
        raise ValueError(f"expected slices (n, h, w) and a positive size, found {slices.shape} and {size}")
    if order not in (0, 1):
        raise ValueError(f"expected order 0 (nearest) or 1 (linear), found {order}")
    if order == 1 and slices.dtype != np.float32:
        raise TypeError(f"linear resizing needs float32, found {slices.dtype}")
    out = np.empty((len(slices), *size), slices.dtype)
    run = _native.linear if order == 1 else _native.nearest
    run(np.ascontiguousarray(slices), out, _count(threads))
    return out


def argmax_resized(logits: NDArray[np.float32], size: tuple[int, int], *, order: int, threads: int = 0) -> Labels:
    """Class indices (n, *size) of logits (n, classes, h, w), without storing the resized logits.

    Order 1 resizes the logits linearly and takes the argmax there; order 0 takes the argmax first and
    resizes it by nearest neighbour, as the published evaluation does.
    """
    if logits.ndim != 4 or 0 in logits.shape or min(size) < 1:
        raise ValueError(f"expected logits (n, classes, h, w) and a positive size, found {logits.shape}, {size}")
    if order not in (0, 1):
        raise ValueError(f"expected order 0 (nearest) or 1 (linear), found {order}")
    out: Labels = np.empty((len(logits), *size), np.uint8 if logits.shape[1] <= 256 else np.uint16)
    _native.argmax(np.ascontiguousarray(logits, np.float32), out, order, _count(threads))
    return out


def resample(slices: NDArray[np.float32], rows: Taps, columns: Taps, *, threads: int = 0) -> NDArray[np.float32]:
    """Slices (n, h, w) to (n, len(rows), len(columns)): each output pixel is the weighted sum that its taps say."""
    if slices.ndim != 3 or slices.dtype != np.float32:
        raise ValueError(f"expected float32 slices (n, h, w), found {slices.dtype} {slices.shape}")
    _check_taps(rows, columns, slices.shape[1:])
    out = np.empty((len(slices), len(rows), len(columns)), np.float32)
    if out.size:
        _native.resample(np.ascontiguousarray(slices), out, *rows.arrays, *columns.arrays, _count(threads))
    return out


def argmax_resampled(logits: NDArray[np.float32], rows: Taps, columns: Taps, *, threads: int = 0) -> Labels:
    """Class indices (n, len(rows), len(columns)) of the resampled logits (n, classes, h, w), which are not stored.

    The first of equal classes wins.
    """
    if logits.ndim != 4 or logits.dtype != np.float32:
        raise ValueError(f"expected float32 logits (n, classes, h, w), found {logits.dtype} {logits.shape}")
    _check_taps(rows, columns, logits.shape[2:])
    shape = len(logits), len(rows), len(columns)
    out: Labels = np.empty(shape, np.uint8 if logits.shape[1] <= 256 else np.uint16)
    if out.size:
        _native.argmax_taps(np.ascontiguousarray(logits), out, *rows.arrays, *columns.arrays, _count(threads))
    return out


def keep_largest(view: Labels, only: Collection[int] | None = None, *, threads: int = 0) -> None:
    """Set all but the largest piece of each class (of those in `only`) to 0, in place; neighbours share a face.

    Of pieces of the same size the one that comes first in `view` stays.  No order of axes or flip costs a copy.
    """
    ids = None if only is None else [label for label in only if label <= np.iinfo(view.dtype).max]
    _native.keep_largest(_label_map(view), ids, _count(threads))


def fill_holes(view: Labels, label: int, *, threads: int = 0) -> None:
    """Give background that class `label` encloses in its slice `view[n]` to the class, in place."""
    if 0 < label <= np.iinfo(view.dtype).max:
        _native.fill_holes(_label_map(view), label, _count(threads))


def slice_counts(view: Labels, ids: Sequence[int], *, threads: int = 0) -> NDArray[np.int64]:
    """How many voxels of each of these classes above 0 there are in every slice `view[n]` (slices, classes)."""
    counts = np.zeros((len(view), len(ids)), np.int64)
    within = [n for n, label in enumerate(ids) if label <= np.iinfo(view.dtype).max]
    found = np.zeros((len(view), len(within)), np.int64)
    _native.slice_counts(_label_map(view), [ids[n] for n in within], found, _count(threads))
    counts[:, within] = found
    return counts


def _label_map(view: Labels) -> Labels:
    if view.ndim != 3 or view.dtype not in (np.uint8, np.uint16):
        raise ValueError(
            f"expected a uint8 or uint16 label map (slices, rows, columns), found {view.dtype} {view.shape}"
        )
    return view


def soft_labels(
    classes: NDArray[np.uint8], size: tuple[int, int], count: int, *, threads: int = 0
) -> NDArray[np.uint8]:
    """Class indices (n, h, w) below `count`, resized to (n, *size): the class with the largest share of a pixel.

    Each class is a map of 0 and 1 that is resampled as an image is; the largest wins, the first of equals.
    """
    if classes.ndim != 3 or classes.dtype != np.uint8 or not 1 <= count <= 256:
        raise ValueError(f"expected uint8 classes (n, h, w), found {classes.dtype} {classes.shape}, {count} classes")
    rows, columns = (taps(n, new) for n, new in zip(classes.shape[1:], size, strict=True))
    out = np.empty((len(classes), *size), np.uint8)
    at_once = _count(threads)  # as many slices as there are threads: their maps are all that is held
    each = np.arange(count, dtype=np.uint8)[:, None, None]
    for start in range(0, len(classes), at_once):
        maps = (classes[start : start + at_once, None] == each).astype(np.float32)
        out[start : start + at_once] = argmax_resampled(maps, rows, columns, threads=threads)
    return out


def _check_taps(rows: Taps, columns: Taps, size: tuple[int, ...]) -> None:
    if rows.end > size[0] or columns.end > size[1] or min(rows.begin, columns.begin) < 0:
        raise ValueError(f"expected slices of {rows.end} rows and {columns.end} columns or more, found {size}")


@dataclass(frozen=True)
class Overlap:
    """Voxel counts of one class in two label maps; the box (inclusive, in array axes) contains both."""

    in_a: int
    in_b: int
    in_both: int
    box: tuple[int, int, int, int, int, int]


def overlaps(a: Labels, b: Labels, *, threads: int = 0) -> dict[int, Overlap]:
    """Voxel counts of every class id above 0 in either map, in one pass."""
    a, b = _same_layout(a, b)
    rows = _native.overlap(a, b, _count(threads))
    return {row[0]: Overlap(row[1], row[2], row[3], _box(row[4:])) for row in rows}


def surface_distances(
    a: Labels,
    b: Labels,
    label: int,
    overlap: Overlap,
    spacing: Spacing,
    *,
    threads: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Millimetres from each border voxel of class `label` in `a` to the nearest in `b`, and back.

    `overlap` is what `overlaps` returned for that class and these arrays; both must contain it.
    """
    a, b = _same_layout(a, b)
    if isinstance(spacing, np.ndarray):
        if not at_right_angles(spacing):
            return _native.sheared(a, b, label, overlap.box, spacing.tolist(), _count(threads))
        spacing = step_lengths(spacing)
    return _native.surface(a, b, label, overlap.box, spacing, _count(threads))


def step_lengths(steps: NDArray[np.float64]) -> tuple[float, float, float]:
    """The length of each row in millimetres."""
    a, b, c = np.sqrt((steps**2).sum(axis=1))
    return float(a), float(b), float(c)


def at_right_angles(steps: NDArray[np.float64]) -> bool:
    directions = steps / np.sqrt((steps**2).sum(axis=1, keepdims=True))
    return bool(np.abs((directions @ directions.T)[np.triu_indices(3, 1)]).max() <= RIGHT_ANGLE)


def _same_layout(a: Labels, b: Labels) -> tuple[Labels, Labels]:
    if a.ndim != 3 or a.shape != b.shape:
        raise ValueError(f"expected two 3-D label maps of the same shape, found {a.shape} and {b.shape}")
    if a.dtype != b.dtype or a.dtype not in (np.uint8, np.uint16):
        raise TypeError(f"expected two uint8 or two uint16 label maps, found {a.dtype} and {b.dtype}")
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def _box(values: list[int]) -> tuple[int, int, int, int, int, int]:
    z0, y0, x0, z1, y1, x1 = values
    return z0, y0, x0, z1, y1, x1
