"""The class graph of the contrast: which other classes the negatives of a class come from, similar ones most often."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def class_graph(means: Tensor, present: Tensor, stocked: Tensor, temperature: float) -> Tensor:
    """pi_c(v) of method 4.2.5 (C, C): a softmax over the other classes, by the cosine of class means (C, D).

    `present` (C) says which classes the batch has, `stocked` (C) which have keys to draw.  Rows without any partner
    are 0.
    """
    mean = F.normalize(means, dim=1)
    others = ~torch.eye(len(means), dtype=torch.bool, device=means.device)
    pairs = present[:, None] & present & stocked & others
    likeness = (mean @ mean.T / temperature).masked_fill(~pairs, -torch.inf)
    return likeness.softmax(1).masked_fill(~pairs, 0)  # a row of -inf alone comes out of softmax as NaN
