"""Cross-entropy + Dice against a label (method 3.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMOOTH = 1e-5


def supervised(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy plus Dice, in float32 even under autocast; logits B C H W, labels B H W int64.

    With a weight B H W, both are weighted sums over pixels; where no pixel counts, the loss is 0.
    """
    expected = (len(logits), *logits.shape[2:])
    if logits.ndim != 4 or labels.shape != expected or (weight is not None and weight.shape != expected):
        found = f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        found += "" if weight is None else f", weight {tuple(weight.shape)}"
        raise ValueError(f"expected logits (B, C, H, W) and labels (B, H, W), found {found}")
    log_p = F.log_softmax(logits.float(), 1)
    if weight is None:
        return F.nll_loss(log_p, labels) + dice(log_p.exp(), labels)
    weight = weight.float()
    each = F.nll_loss(log_p, labels, reduction="none")
    return (each * weight).sum() / weight.sum().clamp(min=1) + dice(log_p.exp(), labels, weight[:, None])


def dice(p: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """1 - (2 sum py + s) / (sum p^2 + sum y^2 + s), sums over the whole batch, mean over all C including background."""
    y = torch.zeros_like(p).scatter_(1, labels[:, None], 1)
    over = (0, 2, 3)
    if weight is None:
        overlap, total = (p * y).sum(over), p.square().sum(over) + y.sum(over)  # y^2 = y
    else:
        overlap, total = (p * y * weight).sum(over), ((p.square() + y) * weight).sum(over)
    return (1 - (2 * overlap + SMOOTH) / (total + SMOOTH)).mean()
