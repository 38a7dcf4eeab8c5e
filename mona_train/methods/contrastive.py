"""What contrastive pre-training stages share (method 6, "CL frameworks"): labels for the U-Net, two views for its
encoder.  L = L_sup (labelled slices) + w L_CL (all slices); each framework adds its L_CL on the pooled bottleneck.

The first view also carries the labels, so it has the run's own geometry; only the second, another draw, is cropped as
in MoCo v2.  Colour and blur of both are MoCo v2's (grey and hue mean nothing on one channel).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from mona_train.augment import Geometry, Strength, copy_paste
from mona_train.augment.draw import uniform
from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.acr_batch import LABELLED_TAGS
from mona_train.methods.bank import UNKNOWN
from mona_train.methods.base import Losses, Step
from mona_train.methods.views import crop, size_of, weak_batch, weak_geometry
from mona_train.networks.unet import UNet, UNetOutput

STRENGTH = Strength(
    brightness=(0.6, 1.4), contrast=(0.6, 1.4), blur=(0.1, 2.0), colour_probability=0.8, gamma_probability=0.0
)


@dataclass(frozen=True)
class Settings(base.Settings):
    """A contrastive pre-training stage, method 6."""

    contrast_weight: float = 1.0
    supervised_scale: float = 1.0  # of cross-entropy + Dice, as in GLCon (decision 9)
    crop: float = 0.2  # smallest area of the second view's crop, as a share of the first's; 1: no crop
    copy_paste: bool = False  # half of the labelled slices show a box of another one

    def __post_init__(self) -> None:
        within(self, "contrastive", 0, None, "contrast_weight", "supervised_scale")
        within(self, "contrastive", 0.01, 1, "crop")


class Views(NamedTuple):
    """Of all slices of a step, the labelled ones first."""

    first: Tensor  # B 1 H W, which the student sees
    second: Tensor  # B 1 H W
    labels: Tensor  # n H W, of the first view's first n
    slices: Tensor  # B 1 int64: which slice each image shows


class Contrastive(base.Stage):
    """A student that fits labels and embeds two views of a slice alike."""

    Settings: ClassVar[type[base.Settings]] = Settings

    def weights(self, step: Step) -> dict[str, float]:
        return {"contrast": self.settings.contrast_weight}

    def losses(self, step: Step) -> Losses:
        """With weight 0, `contrast` is not computed at all."""
        s = self.settings
        views = self.views(step)
        out: UNetOutput = step.student["unet"](views.first)
        losses = {"supervised": s.supervised_scale * supervised(out.logits[: len(views.labels)], views.labels)}
        return losses | self.contrast(step, views, out) if s.contrast_weight > 0 else losses

    def views(self, step: Step) -> Views:
        """Pasted before both views: a pair must show the same picture."""
        g, look = step.generator, step.augment.appearance
        step = pasted_slices(step) if self.settings.copy_paste else step
        weak, labels = weak_batch(step)
        images = torch.cat([batch.images for batch in (step.labelled, step.unlabelled) if batch is not None])
        geometry, window = weak_geometry(step, images)
        cropped = geometry.then(resized_crop(g, len(images), self.settings.crop)).apply(images, size=window).images
        return Views(look(g, weak, STRENGTH), look(g, cropped, STRENGTH), labels, slices_of(step))

    @abstractmethod
    def contrast(self, step: Step, views: Views, out: UNetOutput) -> Losses:
        """`contrast`, unweighted, given the student's answer on the first view; missing while a queue fills up."""


def channels(stage: base.Stage) -> int:
    """Of the bottleneck; no network is made, and no random number drawn."""
    with torch.device("meta"):
        return UNet(stage.classes, width=stage.width).channels[0]


def pooled(bottleneck: Tensor) -> Tensor:
    """B C h w to B C: the mean over pixels."""
    return bottleneck.float().mean((2, 3))


def encoded(unet: Any, images: Tensor) -> Tensor:
    """The pooled bottleneck of images (B, 1, H, W), without the decoder."""
    return pooled(unet.encode(images)[-1])


def head(networks: nn.ModuleDict, name: str, rows: Tensor) -> Tensor:
    rows = networks[name](rows)
    return rows.float()


def slices_of(step: Step) -> Tensor:
    """Numbers (B, 1) of the slices of a step, the labelled ones first; negative: not known."""
    labelled, images = step.labelled.rows, step.labelled.images
    first = torch.full((len(images),), UNKNOWN, device=images.device) if labelled is None else labelled + LABELLED_TAGS
    return (first if step.unlabelled is None else torch.cat([first, step.unlabelled.rows]))[:, None]


def same_slice(mine: Tensor, theirs: Tensor) -> Tensor:
    """B R, bool: which images (B, 1) and which others (R, 1) show the same slice.

    Labelled slices are few and come back soon, so a queue has many copies of them.
    """
    return (mine == theirs.T) & (mine >= 0)


def resized_crop(generator: Generator, count: int, smallest: float) -> Geometry:
    """Crops of an area uniform in smallest..1."""
    return crop(generator, uniform(generator, (smallest, 1), count).sqrt())


def pasted_slices(step: Step) -> Step:
    batch = step.labelled
    mix = copy_paste(step.generator, len(batch.images), size_of(batch.images), device=batch.images.device)
    return replace(step, labelled=replace(batch, images=mix.of(batch.images), labels=mix.of(batch.labels)))
