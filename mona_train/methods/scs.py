"""SCS (method 6): SimCLR on all slices, then pixels of one class are drawn together, then supervised training.

Hu et al., "Semi-supervised contrastive learning for label-efficient medical image segmentation", 2021.

1. scs-global, the encoder: two views of a slice should be more like each other than like views of other slices.
2. scs-local, everything, on labelled slices: an organ's pixel i should be more like pixels P(i) of its class, in all
   images and both views, than like any other pixel, background included:
   L = mean over i, mean over j in P(i) of -log(exp(s_ij / t) / sum over k != i of exp(s_ik / t)), s the cosine.
3. scs-finetune: supervised training of everything.

Unlike the published code: stage 1 has training slices only (there: of test patients too) and its head is trained
(there: not in the optimiser); stage 2 has labels of labelled patients only (there, by an option, of test patients), and
compares 2,048 pixels drawn at random, not every fourth in each direction, which takes gigabytes.  Intensities are those
of method 5.2, which stay within 0..1; the rate falls as a power, not a cosine.  Stage 3 has the run's augmentation,
loss and optimiser, so that methods differ in their idea alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mona_train.augment import ACR
from mona_train.config.schema import Batch
from mona_train.config.toml import within
from mona_train.losses.nt_xent import nt_xent
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step, Turn, adam
from mona_train.methods.supervised import Supervised
from mona_train.methods.views import weak_geometry, weak_view
from mona_train.networks.unet import UNet, UNetOutput


@dataclass(frozen=True)
class GlobalSettings(base.Settings):
    """Stage 1 of SCS, method 6."""

    temperature: float = 0.5

    def __post_init__(self) -> None:
        within(self, "scs-global", 1e-3, None, "temperature")


@dataclass(frozen=True)
class LocalSettings(base.Settings):
    """Stage 2 of SCS, method 6."""

    temperature: float = 0.1
    pixels: int = 2048  # per step, both views together; memory grows with the square: 16 MiB for each matrix

    def __post_init__(self) -> None:
        within(self, "scs-local", 1e-3, None, "temperature")
        within(self, "scs-local", 2, None, "pixels")


class SCSGlobal(base.Stage):
    name = "scs-global"
    Settings = GlobalSettings
    everything = True
    cost = 1.45  # two views of twice the batch, through the encoder alone: 36 % of the U-Net

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        # Without an activation, as published.
        head = nn.Sequential(nn.Linear(unet.channels[0], 512), nn.Linear(512, 256))
        return {"unet": unet, "scs_global": head}

    def batch(self, asked: Batch) -> tuple[int, int]:
        """Twice the run's slices, since all but one are negatives; 120 were published.  The labelled one is unused."""
        return 1, 2 * (asked.labelled + asked.unlabelled)

    def turns(self) -> tuple[Turn, ...]:
        return (Turn((), self.losses, adam(3e-4, weight_decay=1e-5, power=0.9)),)

    def losses(self, step: Step) -> Losses:
        assert step.unlabelled is not None  # with `everything` there are always some
        images = step.unlabelled.images
        views = torch.cat([self._view(step, images) for _ in range(2)])
        bottleneck = step.student["unet"].encode(views)[-1]
        rows = step.student["scs_global"](bottleneck.mean((2, 3)))
        # A slice may be dealt twice where there are fewer slices than a step asks for.
        shown = step.unlabelled.rows.repeat(2)
        return {"global": nt_xent(rows, shown[:, None] == shown, temperature=self.settings.temperature)}

    def _view(self, step: Step, images: Tensor) -> Tensor:
        geometry, window = weak_geometry(step, images)
        warp = step.augment.warp(step.generator, len(images), images.device)
        view = (geometry if warp is None else geometry.then(warp)).apply(images, size=window)
        return step.augment.appearance(step.generator, view.images, ACR)


class SCSLocal(base.Stage):
    name = "scs-local"
    Settings = LocalSettings
    unlabelled = False

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        # 1 x 1 convolutions on the pixels that were drawn; without an activation, as published.
        head = nn.Sequential(nn.Linear(unet.channels[-1], 256), nn.Linear(256, 128))
        return {"unet": unet, "scs_local": head}

    def batch(self, asked: Batch) -> tuple[int, int]:
        """Half of the run's slices, each in two views."""
        return max(2, (asked.labelled + asked.unlabelled) // 2), 1

    def turns(self) -> tuple[Turn, ...]:
        return (Turn((), self.losses, adam(1e-4, weight_decay=1e-4, power=0.9)),)

    def losses(self, step: Step) -> Losses:
        view = weak_view(step, step.labelled.images, step.labelled.labels)
        assert view.labels is not None
        views = torch.cat([step.augment.appearance(step.generator, view.images, ACR) for _ in range(2)])
        out: UNetOutput = step.student["unet"](views)
        each = max(1, self.settings.pixels // len(views))
        # The same places in all images: none is drawn twice, so no pixel is its own positive.
        places = torch.randperm(view.labels[0].numel(), generator=step.generator)[:each].to(views.device)
        pixels = out.features[-1].flatten(2)[:, :, places].transpose(1, 2).flatten(0, 1)  # V n pixels, each c
        rows = step.student["scs_local"](pixels)
        classes = view.labels.flatten(1)[:, places].flatten().repeat(2)
        # A pixel of background has no positives, so it is no anchor, but all others are compared with it.
        positives = (classes[:, None] == classes) & (classes > 0)
        return {"local": nt_xent(rows, positives, temperature=self.settings.temperature)}


class SCSFinetune(Supervised):
    name = "scs-finetune"


METHODS = (
    Method(
        "scs",
        (SCSGlobal, SCSLocal, SCSFinetune),
        "SimCLR, then contrast of classes, then fine-tuning",
        "Hu et al.",
        2021,
        shares=(0.2, 0.2, 0.6),
    ),
)
