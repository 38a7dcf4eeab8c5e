"""Cross pseudo supervision (method 6, CPS): two networks, each of which learns the other's answers as labels.

They start from different weights, so their mistakes differ and each corrects some of the other's.  Chen et al.,
"Semi-supervised semantic segmentation with cross pseudo supervision", CVPR 2021.

L = L_sup(f1) + L_sup(f2) + w(t) (CE(f1(x_u), argmax f2(x_u)) + CE(f2(x_u), argmax f1(x_u))); argmax has no gradient.

As in SSL4MIS the cross terms are for unlabelled slices alone (the paper has them for labelled ones too), and the
weights of convolutions are drawn anew, Kaiming-normal in one network and Xavier-normal in the other.  Validation
chooses the network that predicts; SSL4MIS saves both.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.losses.supervised import supervised
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch, Consistency
from mona_train.networks.unet import UNet, UNetOutput

Pair = tuple[UNetOutput, UNetOutput]


class CPS(Consistency):
    name = "cps"
    rivals = ("second",)
    cost = 2.0  # two networks

    def networks(self) -> dict[str, nn.Module]:
        return {
            "unet": _redrawn(UNet(self.classes, width=self.width), nn.init.kaiming_normal_),
            "second": _redrawn(UNet(self.classes, width=self.width), nn.init.xavier_normal_),
        }

    def answer(self, step: Step, batch: Batch) -> Pair:
        return step.student["unet"](batch.images), step.student["second"](batch.images)

    def fit(self, out: Pair, batch: Batch) -> Tensor:
        first, second = (supervised(one.logits[: batch.labelled], batch.labels) for one in out)
        return first + second

    def agree(self, step: Step, batch: Batch, out: Pair) -> Tensor:
        first, second = (batch.unlabelled(one.logits).float() for one in out)
        return F.cross_entropy(first, second.argmax(1)) + F.cross_entropy(second, first.argmax(1))


def _redrawn(network: nn.Module, draw: Callable[[Tensor], Tensor]) -> nn.Module:
    """Weights of convolutions anew; their biases, and batch norm (1 and 0), are as PyTorch starts them."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            draw(module.weight)
    return network


METHODS = (Method("cps", (CPS,), "two networks, each learning from the other's answers", "Chen et al.", 2021),)
