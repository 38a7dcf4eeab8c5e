"""What CCT and URPC share (method 6): auxiliary answers beside the U-Net's own, all fitted to the labels.

A supervised loss of half of cross-entropy + Dice, averaged over four answers, is the published mean of eight terms.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from mona_train.losses.supervised import supervised
from mona_train.methods.base import Step
from mona_train.methods.consistency import Batch, Consistency


class SeveralAnswers(Consistency):
    @abstractmethod
    def answer(self, step: Step, batch: Batch) -> list[Tensor]:
        """Logits at full size, those of the U-Net first."""

    def fit(self, out: list[Tensor], batch: Batch) -> Tensor:
        return torch.stack([supervised(logits[: batch.labelled], batch.labels) for logits in out]).mean()
