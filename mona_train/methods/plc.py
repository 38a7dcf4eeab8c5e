"""PLC (method 6): rounds of pseudo-labels, and a contrast that draws pixels of one organ together across images.

Chaitanya et al., "Local contrastive loss with pseudo-label based self-training for semi-supervised medical image
segmentation", 2023.

A network trained on labels alone (plc-baseline) labels the other slices; then L = Dice + 0.1 L_local on both kinds
(plc), and the network labels them anew at each third of the stage.  L_local is that of losses/class_means.py.

Unlike the published code: no conditional random field on the pseudo-labels; L_local is normalised once; and the run's
augmentation and optimiser, so that methods differ in their idea alone.  Pseudo-labels are made when a slice is dealt,
by a copy of the network as it was at the start of the round, which gives the same labels as making all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mona_infer.task import centred
from mona_train.augment import View
from mona_train.config.toml import within
from mona_train.losses.class_means import class_means_contrast
from mona_train.losses.supervised import dice
from mona_train.losses.unsupervised import IGNORE
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.supervised import Supervised
from mona_train.methods.views import size_of, weak_geometry, weak_view
from mona_train.networks.unet import UNet, UNetOutput


@dataclass(frozen=True)
class Settings(base.Settings):
    """PLC, method 6."""

    contrast_weight: float = 0.1
    temperature: float = 0.1
    pixels: int = 3  # of each organ and image
    rounds: int = 3  # of pseudo-labels

    def __post_init__(self) -> None:
        within(self, "plc", 0, None, "contrast_weight")
        within(self, "plc", 1e-3, None, "temperature")
        within(self, "plc", 1, None, "pixels", "rounds")


class PLCBaseline(Supervised):
    name = "plc-baseline"


class PLC(base.Stage):
    name = "plc"
    Settings = Settings
    cost = 1.25  # pseudo-labels take a forward pass over half the batch; the head and its loss are the rest

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        # Part of the stage, and so saved with the run.
        self.labeller = UNet(self.classes, width=self.width).requires_grad_(False).eval()

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        c = unet.channels[-1]
        head = nn.Sequential(nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 1))
        return {"unet": unet, "plc_head": head}

    def weights(self, step: Step) -> dict[str, float]:
        return {"contrast": self.settings.contrast_weight}

    def losses(self, step: Step) -> Losses:
        s = self.settings
        if begins(step.index, step.steps, s.rounds):
            self.renew(step)
        images, labels = self.seen(step)
        out: UNetOutput = step.student["unet"](step.augment.appearance(step.generator, images, None))
        known = (labels != IGNORE)[:, None].float()
        losses = {"dice": dice(out.logits.float().softmax(1), labels.clamp(min=0), known)}
        if s.contrast_weight > 0:
            maps = step.student["plc_head"](out.features[-1])
            shape = len(images), self.classes - 1, s.pixels
            draws = torch.rand(shape, generator=step.generator, dtype=torch.float64)
            losses["contrast"] = class_means_contrast(maps, labels, draws, temperature=s.temperature)
        return losses

    def renew(self, step: Step) -> None:
        """The labeller becomes the student as it is now."""
        self.labeller.load_state_dict(step.student["unet"].state_dict())
        norms = [m for m in self.labeller.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        # Batch norm's running statistics are each process's own; all must give the same pseudo-labels.
        step.processes.average_(b for m in norms for b in (m.running_mean, m.running_var))

    def seen(self, step: Step) -> tuple[Tensor, Tensor]:
        """Weak views of all slices (B, 1, H, W), and labels or pseudo-labels (B, H, W)."""
        view = weak_view(step, step.labelled.images, step.labelled.labels)
        views = [view] if step.unlabelled is None else [view, self.labelled(step, step.unlabelled.images)]
        return torch.cat([v.images for v in views]), torch.cat([v.labels for v in views if v.labels is not None])

    def labelled(self, step: Step, images: Tensor) -> View:
        """Pseudo-labels are made on slices as they are and move with them; beyond the frame there are none."""
        geometry, window = weak_geometry(step, images)
        inner = centred(size_of(images), window)
        labels = torch.full((len(images), *size_of(images)), IGNORE, device=images.device)
        self.labeller.eval()
        with torch.no_grad():
            labels[(..., *inner)] = self.labeller(images[(..., *inner)]).logits.argmax(1)
        return geometry.apply(images, labels, size=window, ignore=IGNORE)


def begins(index: int, steps: int, rounds: int) -> bool:
    """Whether a round starts with this step of the stage; the first does with step 0, since -1 // n is -1."""
    return rounds * index // steps > rounds * (index - 1) // steps


METHODS = (
    Method(
        "plc",
        (PLCBaseline, PLC),
        "rounds of pseudo-labels with a contrast of classes",
        "Chaitanya et al.",
        2023,
        shares=(0.25, 0.75),
    ),
)
