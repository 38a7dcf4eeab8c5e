"""Cross-entropy + Dice against a label (method 3.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMOOTH = 1e-5


def supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy plus Dice, in float32 even under autocast; logits B C H W, labels B H W int64."""
    if logits.ndim != 4 or labels.shape != (len(logits), *logits.shape[2:]):
        raise ValueError(
            f"expected logits (B, C, H, W) and labels (B, H, W), found {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    log_p = F.log_softmax(logits.float(), 1)
    return F.nll_loss(log_p, labels) + dice(log_p.exp(), labels)


def dice(p: Tensor, labels: Tensor) -> Tensor:
    """1 - (2 sum py + s) / (sum p^2 + sum y^2 + s), sums over the whole batch, mean over all C including background."""
    y = torch.zeros_like(p).scatter_(1, labels[:, None], 1)
    over = (0, 2, 3)
    overlap, total = (p * y).sum(over), p.square().sum(over) + y.sum(over)  # y^2 = y
    return (1 - (2 * overlap + SMOOTH) / (total + SMOOTH)).mean()
