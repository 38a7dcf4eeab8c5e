"""Steps made by hand: small random slices, small networks, no trainer."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mona_train.augment import Strength
from mona_train.data.stream import LabelledBatch, UnlabelledBatch
from mona_train.methods.base import Stage, Step

CLASSES, WIDTH = 4, 0.25
STILL = Strength(colour_probability=0, gamma_probability=0, blur_probability=0)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(count: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    """Labels 0..3 (B, H, W): smooth regions of many pixels."""
    rough = torch.rand(count, CLASSES, 4, 4, generator=seeded(seed))
    return F.interpolate(rough, size, mode="bicubic", align_corners=True).argmax(1)


def unit(*shape: int, seed: int = 0) -> Tensor:
    """Embeddings of length 1."""
    return F.normalize(torch.randn(*shape, generator=seeded(seed)), dim=-1)


def painted(labels: Tensor) -> Tensor:
    """Images (B, 1, H, W) on which class n has intensity n/3: a label that was left behind is seen at once."""
    return (labels / (CLASSES - 1))[:, None]


def within(labels: Tensor) -> Tensor:
    """Pixels of one class with all eight neighbours: whatever is interpolated there sees that class alone."""
    values = labels[:, None].float()
    return (F.max_pool2d(values, 3, 1, 1) == -F.max_pool2d(-values, 3, 1, 1))[:, 0]


def stage_of(kind: type[Stage], **settings: Any) -> Stage:
    return kind(kind.Settings(**settings), classes=CLASSES, width=WIDTH)


def step_of(
    stage: Stage, *, index: int = 0, steps: int = 300, labelled: int = 3, unlabelled: int = 3, size: int = 64
) -> Step:
    """The student fresh, the teacher a copy of it as the trainer would make and set it."""
    torch.manual_seed(0)
    student = nn.ModuleDict(stage.networks())
    teacher = nn.ModuleDict({name: copy.deepcopy(student[name]) for name in stage.averaged}).requires_grad_(False)
    without_dropout(teacher)
    batches = _batches(index, labelled, unlabelled, size)
    return Step(index, index, steps, 0, *batches, student, teacher, seeded(index))


def weights_at(stage: Stage, index: int = 0, steps: int = 300) -> dict[str, float]:
    """The weights of a stage's losses at a step; networks and slices do not matter."""
    batch = LabelledBatch(torch.zeros(1, 1, 16, 16), torch.zeros(1, 16, 16, dtype=torch.int64))
    return stage.weights(Step(index, index, steps, 0, batch, None, nn.ModuleDict(), nn.ModuleDict(), seeded(index)))


def following(step: Step, count: int = 1) -> Step:
    """A later step of the same networks, on other slices."""
    number = step.number + count
    size = step.labelled.images.shape[-1]
    unlabelled = 0 if step.unlabelled is None else len(step.unlabelled.images)
    batches = _batches(number, len(step.labelled.images), unlabelled, size)
    return replace(
        step,
        number=number,
        index=step.index + count,
        labelled=batches[0],
        unlabelled=batches[1],
        generator=seeded(number),
    )


def without_dropout(networks: nn.Module) -> None:
    for module in networks.modules():
        if isinstance(module, nn.Dropout):
            module.eval()


def calls_of(module: nn.Module) -> list[tuple[Tensor, Any]]:
    """Input and output of every call of a network from now on."""
    seen: list[tuple[Tensor, Any]] = []
    module.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    return seen


def with_gradient(networks: nn.ModuleDict) -> set[str]:
    """Names of the networks of which some parameter has a gradient that is not zero."""
    return {
        name
        for name, network in networks.items()
        if any(p.grad is not None and bool(p.grad.any()) for p in network.parameters())
    }


def _batches(seed: int, labelled: int, unlabelled: int, size: int) -> tuple[LabelledBatch, UnlabelledBatch | None]:
    labels = blobs(labelled + unlabelled, (size, size), seed)
    images = 0.9 * painted(labels) + 0.1 * torch.rand(len(labels), 1, size, size, generator=seeded(seed))
    first = LabelledBatch(images[:labelled], labels[:labelled])
    if unlabelled == 0:
        return first, None
    return first, UnlabelledBatch(images[labelled:], torch.arange(unlabelled) + seed * unlabelled)
