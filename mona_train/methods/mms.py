"""Min-max similarity (method 6, MMS): two networks taught by two halves of the labelled slices.

On unlabelled slices their maps should agree, pixel by pixel and as embeddings of positions; embeddings of labelled
slices, of which no two show the same, should not.  Lou et al., "Min-max similarity: a contrastive semi-supervised deep
learning network for surgical tools segmentation", TMI 2023 (code 2022).

L = 1/4 (L_sup + L_diff + L_con,U + L_con,L); networks f_n, n = 1, 2; projectors g, h of logits; sg stops the gradient:
  L_sup   = sum over n of CE + Dice of f_n on its own labelled slices
  L_diff  = sum over n of CE(softmax f_n(x_u), sg softmax f_m(x_u)), m the other
  L_con,U = mean over n of InfoNCE(g_n f_n(x_u), sg g_m f_m(x_u)): positive is the same position, at 1/4 of the size
  L_con,L = mean over n of log(1 + sum exp(cos(h_n f_n(x_n), sg h_m f_m(x_m)) / tau)), at 1/8 of the size

Unlike the published code: L_diff has a gradient (there `.item()` takes it away) and is of soft labels with any number
of classes; projectors are trained (there they are not in the optimiser), which needs both directions of the contrast;
embeddings have length 1 in L2, not L1; sizes are those of the maps; the U-Net and SGD are those of all methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.losses.matched_pairs import matched, unmatched
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.views import weak_batch
from mona_train.networks.unet import UNet

NETWORKS = ("unet", "second")
PIXELS = ("pixels", "second_pixels")  # g: projectors of the unlabelled slices' logits
REGIONS = ("regions", "second_regions")  # h: of the labelled ones'
CHANNELS = 8  # of a projector's first level; twice as many on each further one


@dataclass(frozen=True)
class Settings(base.Settings):
    """Min-max similarity, method 6."""

    supervised_weight: float = 0.25
    difference_weight: float = 0.25
    similarity_weight: float = 0.25  # of unlabelled slices, to be large
    dissimilarity_weight: float = 0.25  # of labelled slices' similarity, to be small
    temperature: float = 0.07

    def __post_init__(self) -> None:
        names = ("supervised", "difference", "similarity", "dissimilarity")
        within(self, "mms", 0, None, *(f"{name}_weight" for name in names))
        within(self, "mms", 1e-3, None, "temperature")


class Projector(nn.Sequential):  # type: ignore[misc]
    """Logits (B, C, H, W) to embeddings of positions, at half the size for each level."""

    def __init__(self, classes: int, levels: int) -> None:
        c = [classes, *(CHANNELS << level for level in range(levels))]
        blocks = (
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
            for a, b in pairwise(c)
        )
        super().__init__(*blocks, nn.Conv2d(c[-1], c[-1], 1))


class MMS(base.Stage):
    name = "mms"
    Settings = Settings
    rivals = ("second",)
    cost = 2.6  # two networks on 3/4 of the batch each; the rest is the contrast of 64 x 64 positions

    def networks(self) -> dict[str, nn.Module]:
        unets = {name: UNet(self.classes, width=self.width) for name in NETWORKS}
        projectors = {name: Projector(self.classes, n) for n, names in ((2, PIXELS), (3, REGIONS)) for name in names}
        return {**unets, **projectors}

    def weights(self, step: Step) -> dict[str, float]:
        s = self.settings
        return {
            "supervised": s.supervised_weight,
            "difference": s.difference_weight,
            "similarity": s.similarity_weight,
            "dissimilarity": s.dissimilarity_weight,
        }

    def losses(self, step: Step) -> Losses:
        plain, labels = weak_batch(step)
        images = step.augment.appearance(step.generator, plain, None)
        mine, n = halves(step), len(labels)
        fits, labelled, unlabelled = [], [], []
        for name, own in zip(NETWORKS, mine, strict=True):
            seen = torch.cat([images[:n][own], images[n:]])
            if len(seen) == 0:  # no slice of its half in this batch, and no unlabelled ones
                continue
            logits, count = step.student[name](seen).logits.float(), int(own.sum())
            fits += [supervised(logits[:count], labels[own])] if count else []
            labelled.append(logits[:count])
            unlabelled.append(logits[count:])
        losses = {"supervised": torch.stack(fits).sum()}
        if len(images) > n:
            losses["difference"] = difference(*unlabelled)
            losses["similarity"] = self._contrast(step, matched, PIXELS, unlabelled)
        if len(fits) == 2:
            losses["dissimilarity"] = self._contrast(step, unmatched, REGIONS, _paired(*labelled))
        return losses

    def _contrast(
        self, step: Step, loss: Callable[..., Tensor], names: tuple[str, str], logits: list[Tensor]
    ) -> Tensor:
        a, b = (step.student[name](maps).flatten(2).mT for name, maps in zip(names, logits, strict=True))
        return (loss(a, b, self.settings.temperature) + loss(b, a, self.settings.temperature)) / 2


def halves(step: Step) -> tuple[Tensor, Tensor]:
    """Which labelled slices each network learns from: those of even and of odd rows, the same ones in every epoch."""
    rows = step.labelled.rows
    even = (torch.arange(len(step.labelled.labels)) if rows is None else rows) % 2 == 0
    even = even.to(step.labelled.labels.device)
    return even, ~even


def difference(first: Tensor, second: Tensor) -> Tensor:
    """Cross-entropy with the other network's probabilities, in both directions."""
    a, b = first.softmax(1).detach(), second.softmax(1).detach()
    return F.cross_entropy(first, b) + F.cross_entropy(second, a)


def _paired(first: Tensor, second: Tensor) -> list[Tensor]:
    """As many of both: the shorter one starts again from its first slice."""
    at = torch.arange(max(len(first), len(second)), device=first.device)
    return [first[at % len(first)], second[at % len(second)]]


METHODS = (Method("mms", (MMS,), "two networks, contrasted on labelled and unlabelled slices", "Lou et al.", 2022),)
