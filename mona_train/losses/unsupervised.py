"""Cross-entropy on pseudo-labels (METHOD 4.3): every pixel counts, weighted by how sure the teacher is of its image."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

IGNORE = -1  # a pixel without a pseudo-label


def unsupervised(logits: Tensor, labels: Tensor, confidence: Tensor, *, sure: float = 0.97) -> Tensor:
    """Mean over the pixels that have a pseudo-label (Decision 3) of w_b CE, w_b the share of sure pixels of image b.

    logits B C H W, labels and confidence B H W.
    """
    known = labels != IGNORE
    weight = ((confidence >= sure) & known).flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1)
    loss = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="none")
    return (weight[:, None, None] * loss).sum() / known.sum().clamp(min=1)
