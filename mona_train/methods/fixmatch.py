"""FixMatch: what the network is sure of on a weak view of a slice, it should also say on a strong view.

Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and confidence", 2020.
L = 0.5 (CE + Dice) + mean over pixels of 1[max p >= 0.95] CE(f(strong(x)), argmax p), p = softmax f(weak(x)), detached.
No teacher and no ramp.  The strong view has the weak one's geometry, so that pixels correspond: colour and blur stand
for RandAugment.  Colour and blur are those of UniMatch's medical code.
Differs from public code: pseudo-labels are made without dropout, which is up to 0.5 in this U-Net, and with the batch
statistics of the weak views; labelled and strong slices go through the network together (decision 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mona_train.augment import Mix, Strength, cutmix
from mona_train.augment.draw import coins
from mona_train.config.toml import within
from mona_train.losses.supervised import dice
from mona_train.losses.unsupervised import unsupervised
from mona_train.methods import consistency
from mona_train.methods.base import Method, Step, frozen_statistics
from mona_train.methods.consistency import Batch, Consistency
from mona_train.methods.views import size_of

STRENGTH = Strength(
    brightness=(0.5, 1.5), contrast=(0.5, 1.5), blur=(0.1, 2.0), colour_probability=0.8, gamma_probability=0.0
)


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """FixMatch."""

    consistency_weight: float = 1.0
    sure: float = 0.95  # confidence from which a pixel's pseudo-label counts
    mix: float = 0.0  # probability that a strong view shows a box of another slice (CutMix)
    pseudo_loss: Literal["ce", "dice"] = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "fixmatch", 0, 1, "sure", "mix")


class Pseudo(NamedTuple):
    """What the network says of weak views."""

    logits: Tensor  # m C H W
    labels: Tensor  # m H W
    confidence: Tensor  # m H W


class Answer(NamedTuple):
    logits: Tensor  # n C H W, of the labelled slices
    strong: list[Tensor]  # m C H W each: of the strong views of the others
    mixes: list[Mix]  # of these
    pseudo: Pseudo | None = None  # None: there are no unlabelled slices
    perturbed: Tensor | None = None  # m C H W, of another stream (UniMatch)


class FixMatch(Consistency):
    name = "fixmatch"
    Settings = Settings
    cost = 1.2  # the pass over weak views
    views: ClassVar[int] = 1  # strong ones of a slice

    def weights(self, step: Step) -> dict[str, float]:
        return {"consistency": self.settings.consistency_weight}

    def answer(self, step: Step, batch: Batch) -> Answer:
        weak = batch.unlabelled(batch.plain)
        if not len(weak):
            return Answer(step.student["unet"](batch.images).logits, [], [])
        pseudo = pseudo_labels(step, weak)
        strong, mixes = zip(*(self.strong(step, weak) for _ in range(self.views)), strict=True)
        logits, *others = self.streams(step, batch, [batch.images[: batch.labelled], *strong], pseudo)
        return Answer(logits, others[: self.views], list(mixes), pseudo, *others[self.views :])

    def streams(self, step: Step, batch: Batch, images: list[Tensor], pseudo: Pseudo) -> list[Tensor]:
        """Logits of labelled slices and of each strong view, of one pass through the network."""
        logits: Tensor = step.student["unet"](torch.cat(images)).logits
        return list(logits.split([len(part) for part in images]))

    def strong(self, step: Step, weak: Tensor) -> tuple[Tensor, Mix]:
        g, count = step.generator, len(weak)
        images = step.augment.appearance(g, weak, STRENGTH)
        mix = cutmix(g, count, size_of(weak), device=weak.device)
        whole = coins(g, 1 - self.settings.mix, count, 1, 1).to(weak.device)
        mix = Mix(mix.keep | whole, mix.partner)
        return mix.of(images), mix

    def agree(self, step: Step, batch: Batch, out: Answer) -> Tensor:
        assert out.pseudo is not None
        labels, confidence = out.pseudo.labels, out.pseudo.confidence
        found = [
            self.judge(logits, mix.of(labels), mix.of(confidence))
            for logits, mix in zip(out.strong, out.mixes, strict=True)
        ]
        return torch.stack(found).mean()

    def judge(self, logits: Tensor, labels: Tensor, confidence: Tensor) -> Tensor:
        """The loss of m views given pseudo-labels (m, H, W), where these are confident."""
        s = self.settings
        if s.pseudo_loss == "ce":
            return unsupervised(logits, labels, confidence, sure=s.sure, by="pixel")
        return dice(logits.float().softmax(1), labels, (confidence >= s.sure).float()[:, None])


def pseudo_labels(step: Step, weak: Tensor) -> Pseudo:
    unet = step.student["unet"]
    with torch.no_grad(), frozen_statistics(unet), without_dropout(unet):
        logits = unet(weak).logits
    confidence, labels = logits.float().softmax(1).max(1)
    return Pseudo(logits, labels, confidence)


@contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """A student that answers as a teacher does: noise in a pseudo-label would be learned."""
    noisy = [m for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.training]
    try:
        for m in noisy:
            m.eval()
        yield
    finally:
        for m in noisy:
            m.train()


METHODS = (
    Method("fixmatch", (FixMatch,), "confident pseudo-labels of a weak view for a strong view", "Sohn et al.", 2020),
)
