"""Deep adversarial networks (method 6, DAN): maps of unlabelled slices should look as good as those of labelled ones.

A discriminator learns to tell from a slice and its map whether the slice is labelled; the segmenter learns to make it
say "labelled" of unlabelled slices too.  Zhang et al., "Deep adversarial networks for biomedical image segmentation
utilizing unannotated images", MICCAI 2017.

Segmenter:     L_sup + w(t) CE(D(p_u, x_u), labelled), D fixed and without dropout.
Discriminator: CE(D(p, x), labelled or not) over all slices; p from the segmenter in evaluation mode, fixed.

Unlike the code of SSL4MIS: any numbers of labelled and unlabelled slices (there, one slice of the targets serves both
and demands halves), any size of slices, and the discriminator's turn sees other weak views of the same slices, so
that nothing is remembered between turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.methods import consistency
from mona_train.methods.base import Losses, Method, Step, Turn, adam
from mona_train.methods.consistency import Batch, Consistency
from mona_train.methods.views import weak_batch
from mona_train.networks.discriminator import LABELLED, UNLABELLED, Discriminator
from mona_train.networks.unet import UNetOutput


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Deep adversarial networks, method 6."""

    discriminator_lr: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "dan", 0, None, "discriminator_lr")


class DAN(Consistency):
    name = "dan"
    Settings = Settings
    cost = 1.8  # the segmenter's second pass is 1/3; the rest is the discriminator, on all slices and on half of them

    def networks(self) -> dict[str, nn.Module]:
        return {**super().networks(), "discriminator": Discriminator(self.classes, width=self.width)}

    def turns(self) -> tuple[Turn, ...]:
        own = adam(self.settings.discriminator_lr, beta2=0.99)  # as SSL4MIS
        return Turn(("unet",), self.losses), Turn(("discriminator",), self.judge, optimiser=own)

    def agree(self, step: Step, batch: Batch, out: UNetOutput) -> Tensor:
        """How far the discriminator is from taking unlabelled slices for labelled ones."""
        maps, images = batch.unlabelled(out.logits).float().softmax(1), batch.unlabelled(batch.images)
        with _fixed(step.student["discriminator"]) as discriminator:
            verdicts = discriminator(maps, images).float()
        return F.cross_entropy(verdicts, _all(LABELLED, verdicts))

    def judge(self, step: Step) -> Losses:
        """The discriminator's turn, after the segmenter's."""
        plain, labels = weak_batch(step)
        images = step.augment.appearance(step.generator, plain, None)
        with _fixed(step.student["unet"]) as unet, torch.no_grad():
            maps = unet(images).logits.float().softmax(1)
        verdicts = step.student["discriminator"](maps, images).float()
        truth = _all(UNLABELLED, verdicts)
        truth[: len(labels)] = LABELLED
        return {"discriminator": F.cross_entropy(verdicts, truth)}


def _all(kind: int, verdicts: Tensor) -> Tensor:
    return torch.full((len(verdicts),), kind, device=verdicts.device)


@contextmanager
def _fixed(network: nn.Module) -> Iterator[nn.Module]:
    """In evaluation mode, and without gradients for its weights: those of its inputs pass."""
    try:
        yield network.eval().requires_grad_(False)
    finally:
        network.train().requires_grad_(True)


METHODS = (Method("dan", (DAN,), "maps of unlabelled slices deceive a discriminator", "Zhang et al.", 2017),)
