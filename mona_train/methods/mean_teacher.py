"""Mean Teacher (method 6, MT): on unlabelled slices the student learns to agree with its EMA, which sees noise.

L = L_sup + w(t) mean((softmax f(x_u) - softmax f_ema(x_u + noise))^2), noise clipped to two sigmas; w = 0 in the first
30th of the steps.  Published constants that count steps are for 30,000 steps; they scale with the stage (decision 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.config.toml import within
from mona_train.methods import consistency
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch, Consistency
from mona_train.methods.views import noise
from mona_train.networks.unet import UNetOutput

QUIET = 30  # no consistency in the first 30th: 1,000 of 30,000


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Mean Teacher, method 6."""

    noise: float = 0.1  # sigma, on intensities in 0..1
    noise_limit: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, self.table(), 0, None, "noise", "noise_limit")


def ramp(index: int, steps: int) -> float:
    """0 while the loss has not started, then the family's ramp."""
    return 0.0 if QUIET * index < steps else consistency.ramp(index, steps)


class MeanTeacher(Consistency):
    name = "mean-teacher"
    Settings = Settings
    averaged = ("unet",)
    cost = 1.2  # the teacher's forward pass over half the batch

    def weights(self, step: Step) -> dict[str, float]:
        return {"consistency": self.settings.consistency_weight * ramp(step.index, step.steps)}

    def agree(self, step: Step, batch: Batch, out: UNetOutput) -> Tensor:
        unlabelled = batch.unlabelled(batch.plain)
        with torch.no_grad():
            target = step.teacher["unet"](unlabelled + self.noise(step, unlabelled)).logits.float().softmax(1)
        return F.mse_loss(batch.unlabelled(out.logits).float().softmax(1), target)

    def noise(self, step: Step, images: Tensor) -> Tensor:
        return noise(step.generator, images, self.settings.noise, self.settings.noise_limit)


METHODS = (
    Method(
        "mean-teacher", (MeanTeacher,), "consistency with an EMA teacher under noise", "Tarvainen and Valpola", 2017
    ),
)
