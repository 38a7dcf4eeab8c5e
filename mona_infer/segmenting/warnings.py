"""Whether a scan looks like what a model was trained on, and warnings where it does not."""

from __future__ import annotations

import numpy as np

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import STACK_RATIO, along_world_axes, body_plane, oriented
from mona_infer.geometry.stack import SliceStack
from mona_infer.models.card import ScanKind
from mona_infer.task import Task
from mona_infer.volume import Volume

# What `Task.seen` may hold, and by what factor a scan may be outside its range without a warning.  Spacing and size
# change what a structure looks like, while intensity units differ between MR scanners anyway.
RANGES = {
    "in-plane spacing": ("mm", 1.25),
    "slice spacing": ("mm", 1.5),
    "field of view": ("mm", 1.25),
    "intensity span": ("", 10.0),
}
FORCE = " (--force segments it anyway)"
TURNED = (
    "its slices are wider than high and the file does not say how they lie in the body: they were turned by a quarter, "
    "as ACDC stores such slices; check the mask"
)
OBLIQUE = 12  # degrees: slices nearer than this to the body's planes are axial, coronal or sagittal


def check_modality(volume: Volume, task: Task, *, force: bool = False, remedy: str = FORCE) -> None:
    """Refuse a CT scan for an MR model, and so on, if both state their modality."""
    if volume.modality and task.modality and volume.modality != task.modality and not force:
        raise InputError(
            f"{volume.source} is {volume.modality} but this model was trained on {task.modality}; "
            f"the mask would be meaningless{remedy}"
        )


def measures(shape: tuple[int, ...], spacing: tuple[float, ...], low: float, high: float) -> dict[str, list[float]]:
    """What `Task.seen` records about a scan; shape and spacing are (slices, rows, columns)."""
    return {
        "in-plane spacing": [spacing[1], spacing[2]],
        "slice spacing": [spacing[0]],
        "field of view": [shape[1] * spacing[1], shape[2] * spacing[2]],
        "intensity span": [high - low],
    }


def training_differences(stack: SliceStack, kind: ScanKind | None = None) -> list[str]:
    """Warnings about how a scan differs from the training data; none if it does not, or nothing is known."""
    task, volume = stack.task, stack.volume
    seen = task.seen | (kind.usual if kind is not None else {})
    shape = (len(stack), *stack.native_size)
    spacing = stack.slicing.reorder(volume.spacing)
    warnings = []
    for name, values in measures(shape, spacing, stack.low, stack.high).items():
        if name not in seen or (name == "intensity span" and not _spans_matter(task)):
            continue
        (low, high), (unit, factor) = seen[name], RANGES[name]
        odd = [v for v in values if not low / factor <= v <= high * factor]
        if odd:
            warnings.append(
                f"its {name} is {odd[0]:.4g} {unit}".rstrip() + f"; in training it was {low:.4g} to {high:.4g}"
            )
    if "slices" in seen and not seen["slices"][0] <= len(stack) <= seen["slices"][1]:
        fewest, most = seen["slices"]
        count = "1 slice" if len(stack) == 1 else f"{len(stack)} slices"
        warnings.append(f"it has {count}; in training there were {fewest:g} to {most:g}")
    if kind is not None and kind.oblique:
        warnings += _orientation(stack, kind)
    thin, thick = (seen.get(name) for name in ("in-plane spacing", "slice spacing"))
    stacks = thin and thick and task.slices == "stack" and thick[0] >= STACK_RATIO * thin[1]  # as in all training scans
    if stacks and spacing[0] < STACK_RATIO * max(spacing[1:]):
        warnings.append(f"it has no thick slices, so it is sliced {task.fallback}; all training scans had thick slices")
    if task.intensity.rule == "window":
        plane = volume.intensities(stack.slicing.view(volume.voxels)[len(stack) // 2])
        span = np.clip(plane, stack.low, stack.high)
        if float(np.ptp(span)) < 0.1 * (stack.high - stack.low):
            warnings.append(
                f"its middle slice hardly covers the intensities {stack.low:g} to {stack.high:g}; is it in HU?"
            )
    return warnings


def _orientation(stack: SliceStack, kind: ScanKind) -> list[str]:
    """About a scan whose slices should be oblique, as a scanner states them and many NIfTI files do not."""
    volume, task = stack.volume, stack.task
    if volume.modality is not None or not along_world_axes(volume.affine):
        plane = body_plane(volume.affine, stack.slicing.axes[0], OBLIQUE)
        return [f"its slices are {plane}, which {kind.name} never is; check the mask"] if plane else []
    if stack.slicing == oriented(volume.affine, volume.shape, "stored", task.slices, task.fallback):
        return []
    return [TURNED]


def _spans_matter(task: Task) -> bool:
    """Not with a fixed window, nor if all training spans were equal: those scans were already normalised."""
    low, high = task.seen["intensity span"]
    return task.intensity.rule != "window" and high - low > 1e-6 * high
