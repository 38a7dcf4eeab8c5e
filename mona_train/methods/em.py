"""Entropy minimisation (method 6, EM): the network learns to be certain, also where nobody says of what.

Vu et al., "ADVENT: Adversarial Entropy Minimization for Domain Adaptation in Semantic Segmentation", CVPR 2019; its
direct entropy loss, without the adversary.  L = L_sup + w(t) mean(-sum_c p_c log p_c) / log C over all pixels of the
batch, those of labelled slices too, as SSL4MIS.

Unlike SSL4MIS, which divides by log 4 for any task, C is the number of classes, so the loss is between 0 and 1.
Logarithms are those of log-softmax: exact, where log(p + 1e-6) would be a little off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from mona_train.methods import consistency
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch, Consistency
from mona_train.networks.unet import UNetOutput


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Entropy minimisation, method 6."""


class EntropyMinimisation(Consistency):
    name = "em"
    Settings = Settings

    def agree(self, step: Step, batch: Batch, out: UNetOutput) -> Tensor:
        return entropy(out.logits)


def entropy(logits: Tensor) -> Tensor:
    """Of the classes, averaged over pixels, as a share of the largest possible: 1 is no idea; logits B C H W."""
    log_p = logits.float().log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean() / math.log(logits.shape[1])


METHODS = (Method("em", (EntropyMinimisation,), "certain answers on every slice", "Vu et al.", 2019),)
