"""Whether a scan looks like what a model was trained on, in words for the one who will trust the mask."""

from __future__ import annotations

import numpy as np

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import STACK_RATIO
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import Task
from mona_infer.volume import Volume

# What `Task.seen` may hold, and how many times beyond its range a scan may lie before it is worth a sentence: spacing
# and size change what a structure looks like, while an MR scanner's unit of intensity is its own affair.
RANGES = {
    "in-plane spacing": ("mm", 1.25),
    "slice spacing": ("mm", 1.5),
    "field of view": ("mm", 1.25),
    "intensity span": ("", 10.0),
}


def check_modality(volume: Volume, task: Task, *, force: bool = False) -> None:
    """Refuse a CT for an MR model, and the like, where both say what they are."""
    if volume.modality and task.modality and volume.modality != task.modality and not force:
        raise InputError(
            f"{volume.source} is {volume.modality}, this model was trained on {task.modality}; "
            "its mask would mean nothing (--force tries all the same)"
        )


def measures(shape: tuple[int, ...], spacing: tuple[float, ...], low: float, high: float) -> dict[str, list[float]]:
    """What `Task.seen` records of a scan; shape and spacing are of (slices, rows, columns)."""
    return {
        "in-plane spacing": [spacing[1], spacing[2]],
        "slice spacing": [spacing[0]],
        "field of view": [shape[1] * spacing[1], shape[2] * spacing[2]],
        "intensity span": [high - low],
    }


def doubts(stack: SliceStack) -> list[str]:
    """Sentences on how a scan differs from the training data; none where it does not, or nothing is known."""
    task, volume = stack.task, stack.volume
    shape = (len(stack), *stack.native_size)
    spacing = stack.slicing.reorder(volume.spacing)
    words = []
    for name, values in measures(shape, spacing, stack.low, stack.high).items():
        if name not in task.seen or (name == "intensity span" and not _spans_tell(task)):
            continue
        (low, high), (unit, factor) = task.seen[name], RANGES[name]
        odd = [v for v in values if not low / factor <= v <= high * factor]
        if odd:
            words.append(
                f"its {name} is {odd[0]:.4g} {unit}".rstrip() + f", in training it was {low:.4g} to {high:.4g}"
            )
    thin, thick = (task.seen.get(name) for name in ("in-plane spacing", "slice spacing"))
    stacks = thin and thick and task.slices == "stack" and thick[0] >= STACK_RATIO * thin[1]  # all of training's
    if stacks and spacing[0] < STACK_RATIO * max(spacing[1:]):
        words.append(f"it has no thick axis, so slices are taken {task.fallback}; in training they were the stack")
    if task.intensity.rule == "window":
        plane = volume.intensities(stack.slicing.view(volume.voxels)[len(stack) // 2])
        span = np.clip(plane, stack.low, stack.high)
        if float(np.ptp(span)) < 0.1 * (stack.high - stack.low):
            words.append(
                f"its middle slice hardly reaches the intensities {stack.low:g} to {stack.high:g}; is it in HU?"
            )
    return words


def _spans_tell(task: Task) -> bool:
    """Not where a window decides, nor where every span of training was the same: those scans were normalised before."""
    low, high = task.seen["intensity span"]
    return task.intensity.rule != "window" and high - low > 1e-6 * high
