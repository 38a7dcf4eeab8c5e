"""How much of an organ the first look of a run leaves outside the window, on scans as they are and disturbed.

    python tools/check_first_look.py runs/acdc-mona-5pc            every labelled scan of the run's data, all parts
    python tools/check_first_look.py RUN --other SCAN.nii.gz ...   also scans without the organ: what the user is told

Scans are shown as they are, shifted by a third of the frame in four directions, padded by half on all sides, cropped
to 70 % of each side and to the organ with a margin, and stored in 48 orders.  A warning is any that `mona segment`
would give about the scan's geometry.  Exit code 1 if more than 1 % of an undisturbed scan is left out.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.geometry.stack import SliceStack
from mona_infer.io.read import read_volume
from mona_infer.segmenting.first_look import NOTHING, UNCERTAIN, look
from mona_infer.segmenting.warnings import training_differences
from mona_infer.system.progress import progress
from mona_infer.task import Task
from mona_infer.volume import Volume
from mona_train.engine.torch_engine import TorchEngine
from mona_train.run.load import load_run

LIMIT = 0.01
PART = 0.7  # of each side, when a scan is cropped
MARGIN = 0.25  # of the organ's size, left around it when a scan is cropped
ORDERS = list(itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)))


def outside(volume: Volume, label: Volume, task: Task, engine: TorchEngine) -> tuple[float, str]:
    """Share of the foreground in no window, and the warning that the user gets."""
    stack = SliceStack(volume, task)
    box, certain = look(stack, engine)
    stack = stack.aimed_at(box)
    told = [NOTHING] if box is None else [UNCERTAIN] if certain < task.least_certain else []
    warning = "; ".join(told + training_differences(stack))
    organ = stack.slicing.view(label.voxels) > 0
    seen = np.zeros(organ.shape[1:], bool)
    for top, left in stack.windows:
        inside = [
            (first <= at) & (at < first + size)
            for first, size, frame, n in zip((top, left), task.input_size, stack.frame, seen.shape, strict=True)
            for at in [(np.arange(n) + 0.5) * frame / n]
        ]
        seen |= inside[0][:, None] & inside[1]
    return float(organ[:, ~seen].sum() / organ.sum()), warning


def disturbed(image: Volume, label: Volume, axes: tuple[int, int], number: int) -> Iterator[tuple[str, Volume, Volume]]:
    """`axes`: the two of a slice."""
    both = image.voxels, label.voxels
    yield "as it is", image, label
    sides = [image.shape[axis] for axis in axes]
    for down, across in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        shift = [round(sign * side / 3) for sign, side in zip((down, across), sides, strict=True)]
        kept = _shifted(both[1], axes, shift)
        if (kept > 0).sum() == (both[1] > 0).sum():  # an organ that left the frame cannot be found
            yield "shifted by a third", _with(image, _shifted(both[0], axes, shift)), _with(label, kept)
    wide = [(image.shape[a] // 2,) * 2 if a in axes else (0, 0) for a in range(3)]
    yield "padded by half", *(_with(v, np.pad(v.voxels, wide)) for v in (image, label))
    part, tight = [slice(None)] * 3, [slice(None)] * 3
    for axis in axes:
        places = np.flatnonzero((both[1] > 0).any(axis=tuple(a for a in range(3) if a != axis)))
        low, high, side = int(places[0]), int(places[-1]), image.shape[axis]
        margin, first = int(MARGIN * (high - low)), min(max(0, (low + high) // 2 - int(PART * side / 2)), low)
        tight[axis], part[axis] = (
            slice(max(0, low - margin), high + margin + 1),
            slice(first, max(first + int(PART * side), high + 1)),
        )
    for kind, box in (("cropped to 70 %", part), ("cropped to the organ", tight)):
        yield kind, *(_with(v, v.voxels[tuple(box)]) for v in (image, label))
    order, signs = ORDERS[number % len(ORDERS)]
    yield "in 48 orders", *(_stored(v, order, signs) for v in (image, label))


def _with(volume: Volume, voxels: NDArray[np.generic]) -> Volume:
    return replace(volume, voxels=np.ascontiguousarray(voxels))


def _shifted(voxels: NDArray[np.generic], axes: tuple[int, int], shift: list[int]) -> NDArray[np.generic]:
    out = np.zeros_like(voxels)
    into, come = [slice(None)] * 3, [slice(None)] * 3
    for axis, n in zip(axes, shift, strict=True):
        into[axis], come[axis] = slice(max(n, 0), n if n < 0 else None), slice(max(-n, 0), -n if n > 0 else None)
    out[tuple(into)] = voxels[tuple(come)]
    return out


def _stored(volume: Volume, order: tuple[int, ...], signs: tuple[int, ...]) -> Volume:
    """The same scan in the world, stored in another order."""
    affine = volume.affine.copy()
    for axis, sign in enumerate(signs):
        if sign < 0:
            affine[:3, 3] += affine[:3, axis] * (volume.shape[axis] - 1)
            affine[:3, axis] *= -1
    voxels = volume.voxels[tuple(slice(None, None, sign) for sign in signs)].transpose(order)
    affine[:3, :3] = affine[:3, list(order)]
    return Volume(np.ascontiguousarray(voxels), affine, slope=volume.slope, intercept=volume.intercept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--other", type=Path, nargs="*", default=[], help="scans without the organ")
    given = parser.parse_args()
    trained = load_run(given.run)
    if trained.look is None:
        parser.error(f"{given.run} has no first look: the network sees whole slices")
    task, engine = trained.task, TorchEngine(trained.look)
    cases = [case for case in trained.require_data().cases() if case.label]
    shares: dict[str, list[float]] = {}
    warned: dict[str, list[bool]] = {}
    for number, case in enumerate(progress(cases, len(cases), "scans")):
        image, label = case.image(), case.label()
        plane = SliceStack(image, task).slicing.axes[1:]
        for kind, moved, truth in disturbed(image, label, plane, number):
            share, warning = outside(moved, truth, task, engine)
            shares.setdefault(kind, []).append(share)
            warned.setdefault(kind, []).append(bool(warning))
    for kind, found in shares.items():
        lost = [told for share, told in zip(found, warned[kind], strict=True) if share > LIMIT]
        print(
            f"{kind:22} {len(found):4} scans: {100 * np.mean(found):.3f} % of the organ outside, at most "
            f"{100 * max(found):.2f} %; {len(lost)} scans lose more than 1 %, {sum(lost)} of them with a warning "
            f"({sum(warned[kind])} warnings in all)"
        )
    for path in given.other:
        stack = SliceStack(read_volume(path), task)
        box, certain = look(stack, engine)
        told = [NOTHING] if box is None else [UNCERTAIN] if certain < task.least_certain else []
        print(f"{path.name}: certainty {certain:.2f} (limit {task.least_certain:.2f}); the user is told:")
        print(*(f"    {warning}" for warning in told + training_differences(stack)), sep="\n")
    return int(max(shares["as it is"]) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
