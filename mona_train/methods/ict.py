"""Interpolation consistency training (method 6, ICT): between two slices the answer is between the two answers.

Verma et al., "Interpolation Consistency Training for Semi-Supervised Learning", IJCAI 2019.
L = L_sup + w(t) mean((p((1 - l) a + l b) - [(1 - l) q(a) + l q(b)])^2), p of the student and q of its EMA, for
unlabelled slices a, b and l from Beta(0.2, 0.2), drawn for each pair: mostly near 0 or 1.

SSL4MIS mixes the first half of the unlabelled batch with the second; with an odd count, one slice would be broadcast
over two.  Here every slice is mixed with the next one, the last with the first (the stream is in random order), so any
count works, the student sees as many unlabelled slices as with other methods, and the teacher is asked once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mona_train.config.toml import within
from mona_train.methods import consistency
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch, Consistency


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Interpolation consistency training, method 6."""

    alpha: float = 0.2  # of the Beta distribution; 1: uniform, small: hardly mixed

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "ict", 1e-3, None, "alpha")


class Mixture(NamedTuple):
    shares: Tensor  # B 1 1 1: of the next map

    def of(self, maps: Tensor) -> Tensor:
        """Each map (B, C, H, W) mixed with the next one."""
        return maps.lerp(maps.roll(-1, 0), self.shares)


class Answer(NamedTuple):
    logits: Tensor  # of labelled slices, then of mixtures
    mixture: Mixture


class Interpolation(Consistency):
    name = "ict"
    Settings = Settings
    averaged = ("unet",)
    cost = 1.2  # the teacher's forward pass over half the batch

    def answer(self, step: Step, batch: Batch) -> Answer:
        labelled, unlabelled = batch.images[: batch.labelled], batch.unlabelled(batch.images)
        mixture = Mixture(draw_shares(step.generator, len(unlabelled), self.settings.alpha).to(unlabelled))
        images = torch.cat([labelled, mixture.of(unlabelled)])
        return Answer(step.student["unet"](images).logits, mixture)

    def agree(self, step: Step, batch: Batch, out: Answer) -> Tensor:
        with torch.no_grad():
            taught = step.teacher["unet"](batch.unlabelled(batch.plain)).logits.float().softmax(1)
        return F.mse_loss(batch.unlabelled(out.logits).float().softmax(1), out.mixture.of(taught))


def draw_shares(generator: Generator, count: int, alpha: float) -> Tensor:
    """Beta(alpha, alpha) numbers, count x 1 x 1 x 1; by NumPy, because torch's Beta takes no generator."""
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, (count, 1, 1, 1)))


METHODS = (Method("ict", (Interpolation,), "a mixture's answer is the mixture of answers", "Verma et al.", 2019),)
