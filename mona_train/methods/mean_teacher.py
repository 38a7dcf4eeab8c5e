"""Mean Teacher (method 6, MT): on unlabelled slices the student learns to agree with its EMA, which sees noise.

Published constants that count steps are for 30,000 steps; they scale with the stage (decision 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step, sigmoid_rampup
from mona_train.methods.views import weak_batch
from mona_train.networks.unet import UNetOutput

EPOCHS = 200  # the ramp rises this many times: every 150 of 30,000 steps
QUIET = 30  # no consistency in the first 30th: 1,000 of 30,000


@dataclass(frozen=True)
class Settings(base.Settings):
    """Mean Teacher, method 6."""

    supervised_scale: float = 0.5  # of cross-entropy + Dice, as SSL4MIS (decision 9)
    consistency_weight: float = 0.1  # at the end of the ramp
    noise: float = 0.1  # sigma, on intensities in 0..1
    noise_limit: float = 0.2

    def __post_init__(self) -> None:
        within(self, "mean-teacher", 0, None, "supervised_scale", "consistency_weight", "noise", "noise_limit")


def ramp(index: int, steps: int) -> float:
    """exp(-5 (1 - e/200)^2) with e = floor(t / 150) of 30,000 steps; 0 while the loss has not started."""
    return 0.0 if QUIET * index < steps else sigmoid_rampup((EPOCHS * index // steps) / EPOCHS)


class MeanTeacher(base.Stage):
    name = "mean-teacher"
    Settings = Settings
    averaged = ("unet",)
    cost = 1.2  # the teacher's forward pass over half the batch

    def weights(self) -> dict[str, float]:
        return {"consistency": self.settings.consistency_weight}

    def ema(self, step: Step, decay: float) -> float:
        """A plain mean of all students so far, until that would be slower than the run's decay."""
        return min(1 - 1 / (step.index + 1), decay)

    def losses(self, step: Step) -> Losses:
        """`consistency` includes its ramp, and is missing until the ramp starts."""
        images, labels = weak_batch(step)
        labelled, unlabelled = images[: len(labels)], images[len(labels) :]
        out: UNetOutput = step.student["unet"](step.augment.appearance(step.generator, images, None))
        scale = self.settings.supervised_scale
        losses = {"supervised": scale * supervised(out.logits[: len(labelled)], labels)}
        now = ramp(step.index, step.steps)
        if now == 0 or len(unlabelled) == 0:
            return losses
        with torch.no_grad():
            target = step.teacher["unet"](unlabelled + self._noise(step, unlabelled)).logits.float().softmax(1)
        found = out.logits[len(labelled) :].float().softmax(1)
        losses["consistency"] = now * F.mse_loss(found, target)
        return losses

    def _noise(self, step: Step, images: Tensor) -> Tensor:
        """Drawn on the CPU, so that a seed gives the same run on every device."""
        limit = self.settings.noise_limit
        drawn = self.settings.noise * torch.randn(images.shape, generator=step.generator)
        return drawn.clamp(-limit, limit).to(images)


METHODS = (
    Method(
        "mean-teacher", (MeanTeacher,), "consistency with an EMA teacher under noise", "Tarvainen and Valpola", 2017
    ),
)
