"""Uncertainty rectified pyramid consistency (method 6, URPC): answers at four scales agree with their mean.

Luo et al., "Efficient Semi-Supervised Gross Target Volume Segmentation of Nasopharyngeal Carcinoma via Uncertainty
Rectified Pyramid Consistency", MICCAI 2021.  With m the mean of p_1..p_4 and V_i = KL(m || p_i) of a pixel,
L = L_sup + w(t) mean over i of [mean((m - p_i)^2 exp(-V_i)) / mean(exp(-V_i)) + mean(V_i)] on unlabelled slices:
where a scale differs from the mean it counts less, at the price V_i.  L_sup is averaged over the scales.

As SSL4MIS: the three coarse heads see perturbed features, and nothing is detached.  Unlike there, log p is that of
log-softmax, since log(softmax) is infinite once p underflows; a head of the bottleneck that was never used is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.methods import consistency
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch
from mona_train.methods.several_answers import SeveralAnswers
from mona_train.networks.auxiliary import PyramidHeads
from mona_train.networks.unet import UNet, UNetOutput


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Uncertainty rectified pyramid consistency, method 6."""

    noise: float = 0.3  # features at 1/2 of the size are multiplied by 1 - noise to 1 + noise
    dropout: float = 0.5  # of features at 1/8 of the size

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "urpc", 0, 1, "noise", "dropout")


class PyramidConsistency(SeveralAnswers):
    name = "urpc"
    Settings = Settings
    cost = 1.1  # the heads are a hundredth of a pass; the rest is four answers at full size

    def networks(self) -> dict[str, nn.Module]:
        unet, s = UNet(self.classes, width=self.width), self.settings
        heads = PyramidHeads(unet.channels, self.classes, noise=s.noise, dropout=s.dropout)
        return {"unet": unet, "pyramid_heads": heads}

    def answer(self, step: Step, batch: Batch) -> list[Tensor]:
        out: UNetOutput = step.student["unet"](batch.images)
        return [out.logits, *step.student["pyramid_heads"](out.features)]

    def agree(self, step: Step, batch: Batch, out: list[Tensor]) -> Tensor:
        return rectified([batch.unlabelled(logits) for logits in out])


def rectified(answers: Sequence[Tensor]) -> Tensor:
    """How far answers (logits, each B C H W) are from their mean probabilities, less where they are uncertain."""
    log_p = torch.stack([logits.float().log_softmax(1) for logits in answers])  # scales B C H W
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    p, mean, over = log_p.exp(), log_mean.exp(), (1, 2, 3, 4)
    variance = (mean * (log_mean - log_p)).sum(2, keepdim=True)  # KL(mean || p_i)
    trust = (-variance).exp()
    distance = ((mean - p).square() * trust).mean(over) / (trust.mean(over) + 1e-8)
    return (distance + variance.mean(over)).mean()


METHODS = (Method("urpc", (PyramidConsistency,), "four scales agree where they are certain", "Luo et al.", 2021),)
