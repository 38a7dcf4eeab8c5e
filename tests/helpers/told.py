"""ACR steps that can be worked out by hand: an all-telling teacher, and no change to a slice but exact ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from helpers.steps import CLASSES, STILL, seeded, step_of
from mona_train.augment import Geometry, matrices, published
from mona_train.data.stream import LabelledBatch, UnlabelledBatch
from mona_train.methods import acr
from mona_train.methods.base import Stage, Step
from mona_train.networks.unet import UNetOutput

LEVELS = 16 * CLASSES  # of intensity: sixteen confidences for each class, none near a threshold
SIZE = 32


def told(images: Tensor) -> tuple[Tensor, Tensor]:
    """Class and confidence (B, H, W) that the teacher reads off images (B, 1, H, W): the class is floor(4 x), and what
    is left of 4 x says how sure the teacher is, from 1/4 (not at all) to 1."""
    scaled = CLASSES * images[:, 0]
    label = scaled.long()
    return label, 1 / CLASSES + (1 - 1 / CLASSES) * (scaled - label)


class Teller(nn.Module):  # type: ignore[misc]
    """A teacher that is as sure of each pixel as `told` says; its features are those of a network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> UNetOutput:
        label, confidence = told(images)
        own = ((CLASSES - 1) * confidence / (1 - confidence)).log()  # all other classes have a logit of 0
        logits = F.one_hot(label, CLASSES).permute(0, 3, 1, 2) * own[:, None]
        return UNetOutput(logits, self.network(images).features)


def slices(count: int, seed: int = 0) -> Tensor:
    """Slices (B, 1, H, W) of random levels; of each further one more pixels are of the surest level of their class."""
    level = torch.randint(0, LEVELS, (count, 1, SIZE, SIZE), generator=seeded(seed))
    surest = torch.rand(level.shape, generator=seeded(seed + 1)) < torch.linspace(0, 0.9, count)[:, None, None, None]
    return (torch.where(surest, level // 16 * 16 + 15, level) + 0.5) / LEVELS


def told_step(stage: Stage, labelled: int = 2, unlabelled: int = 3) -> Step:
    """Teacher and student differ in every weight; there are not as many labelled slices as unlabelled ones."""
    step = step_of(stage, labelled=labelled, unlabelled=unlabelled, size=SIZE)
    for network in step.teacher.values():
        for p in network.parameters():
            p.add_(0.1 * torch.randn_like(p))
    step.teacher["unet"] = Teller(step.teacher["unet"])
    labels = torch.randint(0, CLASSES, (labelled, SIZE, SIZE), generator=seeded(1))
    step.labelled = LabelledBatch(slices(labelled, seed=2), labels)
    step.unlabelled = UnlabelledBatch(slices(unlabelled, seed=4), torch.arange(unlabelled))
    return step


def turned(maps: Tensor) -> Tensor:
    """A quarter turn of maps (..., H, W)."""
    return torch.rot90(maps, 1, (-2, -1))


def quarter_turn(generator: Generator, count: int, *_: object, **__: object) -> Geometry:
    return Geometry((matrices.quarter_turns(torch.ones(count, dtype=torch.int64)),))


def sampled_turn(generator: Generator, count: int, *_: object, **__: object) -> Geometry:
    """The same by points: T is never a mere turn, and L_eqv wants the points of every image."""
    return Geometry((*quarter_turn(generator, count).steps, torch.zeros(count, 2, SIZE, SIZE)))


def by_hand(patch: pytest.MonkeyPatch) -> None:
    """The weak view and T are a quarter turn each, which moves pixels exactly; no warp and no jitter.  CutMix stays."""
    patch.setattr(acr, "STRENGTH", STILL)
    patch.setattr(published, "weak", quarter_turn)
    patch.setattr(published, "diffeo", lambda generator, count, **_: Geometry.identity(count))
    patch.setattr(acr, "equivariance", sampled_turn)
