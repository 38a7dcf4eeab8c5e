"""Cross-consistency training (method 6, CCT): three more decoders read a perturbed encoding, and all must agree.

Ouali et al., "Semi-Supervised Semantic Segmentation with Cross-Consistency Training", CVPR 2020.
L = L_sup + w(t) mean over i of mean((p - p_i)^2) on unlabelled slices, p of the U-Net, p_i of decoder i with feature
noise, dropout, or without the most active regions.  L_sup is averaged over the four answers.  The U-Net predicts.

This is SSL4MIS's version: all five levels are perturbed, since a U-Net's skip connections would carry the clean ones.
There the loss also moves p towards the p_i; the paper stops that gradient, and so does `detach`.  Unlike SSL4MIS,
perturbations follow training mode; they never touched what predicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.methods import consistency
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch
from mona_train.methods.several_answers import SeveralAnswers
from mona_train.networks.auxiliary import CrossDecoders, encoder_levels
from mona_train.networks.unet import UNet


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Cross-consistency training, method 6."""

    noise: float = 0.3  # features are multiplied by 1 - noise to 1 + noise
    dropout: float = 0.3
    detach: bool = False  # only the auxiliary decoders move, as in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "cct", 0, 1, "noise", "dropout")


class CrossConsistency(SeveralAnswers):
    name = "cct"
    Settings = Settings
    cost = 3.1  # three more decoders, each 64 % of a pass, and their perturbations

    def networks(self) -> dict[str, nn.Module]:
        unet, s = UNet(self.classes, width=self.width), self.settings
        decoders = CrossDecoders(unet.channels, self.classes, noise=s.noise, dropout=s.dropout)
        return {"unet": unet, "cross_decoders": decoders}

    def answer(self, step: Step, batch: Batch) -> list[Tensor]:
        with encoder_levels(step.student["unet"]) as levels:
            main = step.student["unet"](batch.images).logits
        return [main, *step.student["cross_decoders"](levels)]

    def agree(self, step: Step, batch: Batch, out: list[Tensor]) -> Tensor:
        main, *others = (batch.unlabelled(logits).float().softmax(1) for logits in out)
        if self.settings.detach:
            main = main.detach()
        return torch.stack([F.mse_loss(other, main) for other in others]).mean()


METHODS = (Method("cct", (CrossConsistency,), "decoders agree on perturbed features", "Ouali et al.", 2020),)
