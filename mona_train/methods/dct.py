"""Consistency under quarter turns (method 6, DCT): the answer on a turned slice is the turned answer.

L = L_sup + w(t) / 2 [mean((sg p(R x) - R p(x))^2) + mean((p(R x) - sg R p(x))^2)] on unlabelled slices; R turns all of
a batch by 0, 90, 180 or 270 degrees, each as likely, and sg stops the gradient.

SSL4MIS calls this deep co-training, and tables that were made with it report it under that name; hence `dct`.  It is
not the method of Qiao et al., "Deep Co-Training for Semi-Supervised Image Recognition", ECCV 2018: that one has two
networks, a Jensen-Shannon loss between them and adversarial examples that keep them different.  Here one network is
compared with itself.  Unlike SSL4MIS, the second pass does not update the running statistics (decision 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.methods import consistency
from mona_train.methods.base import Method, Step, frozen_statistics
from mona_train.methods.consistency import Batch, Consistency
from mona_train.networks.unet import UNetOutput

ROWS_COLUMNS = (2, 3)


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """Consistency under quarter turns, method 6."""


class QuarterTurns(Consistency):
    name = "dct"
    Settings = Settings
    cost = 1.5  # half the batch is seen twice

    def agree(self, step: Step, batch: Batch, out: UNetOutput) -> Tensor:
        quarters = int(torch.randint(4, (), generator=step.generator))
        images = batch.unlabelled(batch.images).rot90(quarters, ROWS_COLUMNS)
        with frozen_statistics(step.student["unet"]):
            seen_turned = step.student["unet"](images).logits.float().softmax(1)
        turned = batch.unlabelled(out.logits).float().softmax(1).rot90(quarters, ROWS_COLUMNS)
        return 0.5 * (F.mse_loss(turned, seen_turned.detach()) + F.mse_loss(seen_turned, turned.detach()))


METHODS = (Method("dct", (QuarterTurns,), "SSL4MIS's co-training: agree with a turned slice", "Qiao et al.", 2018),)
