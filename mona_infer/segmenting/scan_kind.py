"""Whether a scan can be of the kind that a model is for.  A model that comes with mona refuses what plainly is not.

Its users did not train it, so they may not know what it was trained on.  Its card says what kind of scan it is for; a
model without a card refuses nothing but another modality, and warns (`mona_infer.segmenting.warnings`).
"""

from __future__ import annotations

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import STACK_RATIO, oriented, spread
from mona_infer.models.card import ScanKind
from mona_infer.models.file import Model
from mona_infer.segmenting.warnings import FORCE, check_modality, measures
from mona_infer.task import Task
from mona_infer.volume import Volume

TRAIN = "; train a model on scans like this one (mona train --dataset FOLDER), or segment it anyway with --force"
AIR = -500  # nothing in MR is that dark; in CT the air around the patient is
FEW_SLICES = 24  # a stack whose spacing was lost (1 x 1 x 1 mm) has no more than this; a 3-D scan has


def check_scan(volume: Volume, model: Model, *, force: bool = False) -> None:
    """Refuse a scan of another modality than the model's and, for a model with a card, of plainly another kind."""
    if force:
        return
    check_modality(volume, model.task, remedy=FORCE if model.card is None else TRAIN)
    if model.card is None:
        return
    reasons = contradictions(volume, model.task, model.card.scans)
    if reasons:
        found = f"{volume.source} is not {model.card.scans.name}, and the model {model.card.name} knows nothing else"
        raise InputError(f"{found}: {' and '.join(reasons)}{TRAIN}")


def contradictions(volume: Volume, task: Task, kind: ScanKind) -> list[str]:
    """Why a scan cannot be of this kind; nothing if it can."""
    slicing = oriented(volume.affine, volume.shape, task.orientation, task.slices, task.fallback)
    voxels, spacing = slicing.view(volume.voxels), slicing.reorder(volume.spacing)
    count = len(voxels)
    measured = measures(voxels.shape, spacing, 0, 0) | {"depth": [count * spacing[0]]}
    reasons = []
    for name, (low, high) in kind.possible.items():
        if name == "slices":
            if not low <= count <= high:
                reasons.append(f"it has {count} slices")
        elif odd := [value for value in measured[name] if not low <= value <= high]:
            reasons.append(f"its {name} is {odd[0]:.4g} mm")
    if task.slices == "stack" and count > FEW_SLICES and spacing[0] < STACK_RATIO * max(spacing[1:]):
        steps = f"{spacing[0]:.3g} mm apart, with pixels of {spacing[1]:.3g} x {spacing[2]:.3g} mm"
        reasons.append(f"it is a 3-D scan, not a stack of thick slices ({count} slices {steps})")
    if not reasons and task.modality == "MR" and not volume.modality:
        darkest = min(float(volume.intensities(voxels[k]).min()) for k in spread(range(count)))
        if darkest <= AIR:
            reasons.append(f"its intensities go down to {darkest:.0f}, as those of CT do")
    return reasons
