"""Uncertainty-aware mean teacher (method 6, UAMT): Mean Teacher, only where the teacher is certain.

Yu et al., "Uncertainty-aware Self-ensembling Model for Semi-supervised 3D Left Atrium Segmentation", MICCAI 2019.
The teacher answers T = 8 times with other noise and dropout; with U the entropy of the mean answer of a pixel, and
p of the student, q of the teacher, L = L_sup + w(t) sum(m |p - q|^2) / (2 sum(m)), m = U < h(t) ln 2 and
h = 0.75 + 0.25 exp(-5 (1 - t/T)^2), which lets in more pixels with time.

As SSL4MIS: ln 2 and the 2 are those of two classes, whatever the number of classes, and the loss has no pause at the
start, unlike Mean Teacher's.  Unlike there, the teacher's answer q has no dropout, the eight others do not touch its
running statistics (decision 4), and they are eight calls rather than four on the batch twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mona_train.config.toml import within
from mona_train.methods import consistency, mean_teacher
from mona_train.methods.base import Method, Step, frozen_statistics, sigmoid_rampup, with_dropout
from mona_train.methods.consistency import Batch
from mona_train.methods.mean_teacher import MeanTeacher
from mona_train.networks.unet import UNetOutput

LARGEST = math.log(2)  # entropy of two classes


@dataclass(frozen=True)
class Settings(mean_teacher.Settings):
    """Uncertainty-aware mean teacher, method 6."""

    samples: int = 8  # answers that the uncertainty is measured from

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "uamt", 1, None, "samples")


class UncertaintyAware(MeanTeacher):
    name = "uamt"
    Settings = Settings

    @classmethod
    def passes(cls, settings: Any) -> float:
        """Forward passes of the teacher over half the batch, each a sixth of a training pass."""
        return float(1 + (1 + settings.samples) / 6)

    def weights(self, step: Step) -> dict[str, float]:
        return {"consistency": self.settings.consistency_weight * consistency.ramp(step.index, step.steps)}

    def agree(self, step: Step, batch: Batch, out: UNetOutput) -> Tensor:
        images = batch.unlabelled(batch.plain)
        with torch.no_grad():
            target = self._taught(step, images)
            certain = self._uncertainty(step, images) < threshold(step.progress)
        return masked(batch.unlabelled(out.logits).float().softmax(1), target, certain)

    def _taught(self, step: Step, images: Tensor) -> Tensor:
        return step.teacher["unet"](images + self.noise(step, images)).logits.float().softmax(1)

    def _uncertainty(self, step: Step, images: Tensor) -> Tensor:
        """B H W: the entropy of the mean of several answers."""
        teacher, count = step.teacher["unet"], self.settings.samples
        with frozen_statistics(teacher), with_dropout(teacher):
            mean = torch.stack([self._taught(step, images) for _ in range(count)]).mean(0)
        return -(mean * (mean + 1e-6).log()).sum(1)


def threshold(progress: float) -> float:
    """The entropy below which a pixel is certain: it rises from 0.75 ln 2 to ln 2."""
    return (0.75 + 0.25 * sigmoid_rampup(progress)) * LARGEST


def masked(p: Tensor, target: Tensor, certain: Tensor) -> Tensor:
    """Half the squared distance of probabilities B C H W, averaged over the certain pixels B H W; 0 without any."""
    distance = (p - target).square().sum(1)
    return (certain * distance).sum() / (2 * certain.sum() + 1e-16)


METHODS = (Method("uamt", (UncertaintyAware,), "Mean Teacher where the teacher is certain", "Yu et al.", 2019),)
