"""BYOL as pre-training (method 6): the student predicts how its EMA teacher embeds the other view; no negatives.

Grill et al., "Bootstrap your own latent: a new approach to self-supervised learning", 2020.
L = L_sup + sum over both views a, b of mean |u_a - v_b|^2, u = h'(h(student)), v = h(teacher), all of length 1; only
the student has h', without which both could agree on a constant.
Differs from the public code: heads of 2C hidden and C/4 output channels (ISD's rule: 512 and 64 for the U-Net's 256)
instead of 4,096 and 256; the run's EMA decay instead of one that rises from 0.996 to 1; one crop of the two.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.methods.base import Losses, Method, Step, frozen_statistics
from mona_train.methods.contrastive import Contrastive, Views, encoded, head, pooled
from mona_train.networks.projector import Projector
from mona_train.networks.unet import UNet, UNetOutput

HEAD, PREDICTOR = "byol_projector", "byol_predictor"


class BYOL(Contrastive):
    name = "byol"
    averaged = ("unet", HEAD)
    cost = 1.7  # the student's encoder a second time, the teacher's twice

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        inputs = unet.channels[0]
        hidden, dim = 2 * inputs, max(1, inputs // 4)
        return {
            "unet": unet,
            HEAD: Projector(inputs, hidden, dim, batch_norm=True),
            PREDICTOR: Projector(dim, hidden, dim, batch_norm=True),
        }

    def contrast(self, step: Step, views: Views, out: UNetOutput) -> Losses:
        student, teacher = step.student, step.teacher
        with frozen_statistics(student["unet"]):  # those of the first view, for the encoder as for the decoder
            second = encoded(student["unet"], views.second)
        with torch.no_grad():
            taught = [encoded(teacher["unet"], view) for view in (views.first, views.second)]
            v_first, v_second = (head(teacher, HEAD, rows) for rows in taught)
        u_first, u_second = (
            head(student, PREDICTOR, head(student, HEAD, rows)) for rows in (pooled(out.bottleneck), second)
        )
        return {"contrast": distance(u_first, v_second) + distance(u_second, v_first)}


def distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of |u - v|^2 = 2 - 2 cos(u, v) over rows (B, D)."""
    return 2 - 2 * F.cosine_similarity(student, teacher.detach(), dim=1).mean()


METHODS = (Method("byol", (BYOL,), "BYOL with labels: pre-training only", "Grill et al.", 2020),)
PRETRAINING = (BYOL,)
