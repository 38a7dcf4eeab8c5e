"""Sorting DICOM images along their normal into a regular grid, or refusing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.dicom.frame_times import frame_times
from mona_infer.io.dicom.slice import TIMES, Floats, Slice

SAME_PLACE = 0.01  # mm: repeated positions are written identically, and neighbours are never this close
COSINE = 1e-4  # scanners write cosines with 4-6 decimals; 1e-4 moves a corner by 0.05 mm in 500 mm
PIXEL = 1e-4  # relative, on PixelSpacing: 0.05 mm across 500 mm
OFF_GRID = 0.05  # mm that an image may be off the regular grid (positions rounded to 0.1 mm), or 1 % of the spacing
JITTER = 1.0  # mm, or a fifth of the spacing: an image off by less is read as if on the grid, with a note
TILT = 0.2  # degrees between stack and normal above which there is a note
CLOCKS = (0, 1, 3)  # the entries of TIMES that are times: if one is recorded and equal, a counter proves nothing


@dataclass(frozen=True, eq=False)
class Stack:
    """Slices sorted along their normal, and the RAS+ affine of their volume."""

    slices: tuple[Slice, ...]
    affine: Floats
    notes: tuple[str, ...]
    frames: int  # how many there were to choose from
    times: tuple[float, ...]  # seconds from the first frame to each; empty if the files do not say


def arrange(slices: Sequence[Slice], frame: int | None, where: str) -> Stack:
    """Sort the slices along their normal; refuse them if they do not form a regular grid.

    Names and instance numbers say nothing about position: only ImagePositionPatient projected on the normal of
    ImageOrientationPatient does (PS3.3 C.7.6.2.1.1).
    """
    _refuse_mixtures(slices, where)
    seen: dict[tuple[str, int, tuple[int, int] | None], Slice] = {}
    for image in slices:
        twin = seen.setdefault((image.uid, image.frame, image.tile), image)
        if twin is not image:
            raise InputError(f"{twin.name} and {image.name} are copies of the same image; remove one of them")
    row, column = slices[0].orientation.reshape(2, 3)
    normal = np.cross(row, column)
    normal /= np.linalg.norm(normal)
    heights = np.array([image.position for image in slices]) @ normal
    order = np.argsort(heights, kind="stable")
    breaks = np.flatnonzero(np.diff(heights[order]) > SAME_PLACE) + 1
    planes = [[slices[at] for at in plane] for plane in np.split(order, breaks)]
    chosen, notes, times = _one_frame(planes, frame, where)
    step, jitter = _step(chosen, normal, where)
    if jitter and step is not None:
        notes.append(
            f"slices are up to {jitter:.2f} mm off an even spacing: read as {np.linalg.norm(step):.4g} mm apart"
        )
    if step is None:
        thickness = chosen[0].thickness
        if thickness is None:
            notes.append("a single slice without SliceThickness: assumed to be 1 mm thick")
        step = normal * (thickness or 1.0)
    tilt = float(np.degrees(np.arccos(np.clip(step @ normal / np.linalg.norm(step), -1, 1))))
    if tilt > TILT:
        notes.append(
            f"the stack is tilted {tilt:.1f} degrees from the slice normal (gantry tilt): slices are kept as "
            "acquired and the affine includes the shear"
        )
    affine = np.eye(4)
    between_rows, between_columns = chosen[0].spacing
    affine[:3] = np.stack([row * between_columns, column * between_rows, step, chosen[0].position], axis=1)
    affine[:2] *= -1  # DICOM's left and posterior become NIfTI's right and anterior
    return Stack(tuple(chosen), affine, tuple(notes), len(slices) // len(planes), times)


def _refuse_mixtures(slices: Sequence[Slice], where: str) -> None:
    spacing = np.array([image.spacing for image in slices])
    checks: list[tuple[str, Any, float, Callable[[Slice], str]]] = [
        ("size", [s.size for s in slices], 0, lambda s: f"{s.size[0]}x{s.size[1]} pixels"),
        ("pixel type", [(s.dtype.itemsize, s.dtype.kind == "i") for s in slices], 0, lambda s: s.dtype.name),
        ("orientation", [s.orientation for s in slices], COSINE, lambda s: str(s.orientation.round(4).tolist())),
        ("pixel spacing", spacing, PIXEL * spacing.max(), lambda s: f"{s.spacing.round(5).tolist()} mm"),
    ]
    for what, values, tolerance, show in checks:
        table = np.array(values, dtype=np.float64)
        rest, kinds = np.arange(len(slices)), list[NDArray[np.intp]]()
        while rest.size and len(kinds) < 4:  # four kinds are enough for the message
            alike = (np.abs(table[rest] - table[rest[0]]) <= tolerance).all(axis=1)
            kinds.append(rest[alike])
            rest = rest[~alike]
        if len(kinds) > 1:
            kinds.sort(key=len, reverse=True)
            listed = ", ".join(f"{len(kind)} of {show(slices[kind[0]])}" for kind in kinds)
            raise InputError(
                f"{where}: the images of the series differ in {what} ({listed}; one of the odd ones is "
                f"{slices[kinds[-1][0]].name}); remove those or choose another series with --series"
            )


def _one_frame(
    planes: list[list[Slice]], frame: int | None, where: str
) -> tuple[list[Slice], list[str], tuple[float, ...]]:
    """One image per plane: the only one, or the chosen frame of a cine (every plane imaged T > 1 times)."""
    for plane in planes:
        for other in plane[1:]:
            if np.linalg.norm(other.position - plane[0].position) > SAME_PLACE:
                raise InputError(
                    f"{plane[0].name} and {other.name} are in the same plane at different positions; keep one stack"
                )
    frames = Counter(len(plane) for plane in planes).most_common(1)[0][0]
    for plane in planes:
        if len(plane) == frames:
            continue
        if frames == 1:
            raise InputError(f"{plane[0].name} and {plane[1].name} show the same position; remove one of them")
        raise InputError(
            f"{where}: most positions have {frames} frames, but that of {plane[0].name} has {len(plane)}; "
            "find the missing files or remove the extra ones"
        )
    if frames == 1:
        if frame not in (None, 0):
            raise InputError(f"{where} has 1 frame, so --frame can only be 0, not {frame}")
        return [plane[0] for plane in planes], [], ()
    at = _time_key(planes)
    if at is None:
        raise InputError(
            f"{planes[0][0].name} and {planes[0][1].name} show the same position at the same time; remove one of "
            "each such pair"
        )
    if frame is None or not 0 <= frame < frames:
        found = "" if frame is None else f", not {frame}"
        raise InputError(
            f"{where} has {frames} frames; choose one with --frame 0..{frames - 1}{found} (or, for mona segment, all)"
        )
    key: Callable[[Slice], Any] = lambda image: image.times[at]  # noqa: E731
    note = f"frame {frame} of {frames} (0 to {frames - 1}), in the order of {TIMES[at][0]}"
    ordered = [sorted(plane, key=key) for plane in planes]
    times, uneven = frame_times(ordered)
    return [plane[frame] for plane in ordered], [note, *uneven], times


def _time_key(planes: list[list[Slice]]) -> int | None:
    """The best of TIMES that distinguishes all images of a plane; None if a clock says they are the same."""
    same_time = False
    for at in range(len(TIMES)):
        values = [[image.times[at] for image in plane] for plane in planes]
        if any(value is None for plane in values for value in plane):
            continue
        if all(len(set(plane)) == len(plane) for plane in values):
            return None if TIMES[at][0] == "InstanceNumber" and same_time else at
        same_time |= at in CLOCKS
    return None


def _step(chosen: list[Slice], normal: Floats, where: str) -> tuple[Floats | None, float]:
    """The step from one slice to the next in millimetres, and how far the worst slice is off, if beyond rounding.

    Missing slices, and slices far off the grid, are errors.
    """
    n = len(chosen)
    if n == 1:
        return None, 0.0
    positions = np.array([image.position for image in chosen])
    heights = positions @ normal
    gaps = np.diff(heights)
    usual = float(np.sort(gaps)[(n - 2) // 2])  # the lower median: of gaps 1 and 2, the second is a hole
    ratios = gaps / usual
    holes = np.flatnonzero((ratios > 1.5) & (np.abs(ratios - ratios.round()) < 0.25))
    if holes.size:
        at, missing = int(holes[0]), int((ratios[holes].round() - 1).sum())
        places = "" if holes.size == 1 else f", the first of {holes.size} gaps"
        raise InputError(
            f"{where}: {missing} slice{'s are' if missing > 1 else ' is'} missing: slices are {usual:.3g} mm apart "
            f"but {chosen[at].name} and {chosen[at + 1].name} are {gaps[at]:.3g} mm apart (at {heights[at]:.1f} mm "
            f"along the stack{places}); find the missing files"
        )
    step: Floats = (positions[-1] - positions[0]) / (n - 1)
    off = np.linalg.norm(positions - positions[0] - np.arange(n)[:, None] * step, axis=1)
    # Both are capped at a fifth of the spacing, so that a misplaced slice of a micro-CT is still noticed.
    silent, allowed = (min(limit, 0.2 * usual) for limit in (max(OFF_GRID, 0.01 * usual), JITTER))
    if off.max() > allowed:
        worst = int(off.argmax())
        raise InputError(
            f"{where}: the slices are not evenly spaced: {chosen[worst].name} is {off[worst]:.2f} mm from its place "
            f"in a regular stack (allowed: {allowed:.2g} mm); resample the series or choose another"
        )
    return step, float(off.max()) if off.max() > silent else 0.0
