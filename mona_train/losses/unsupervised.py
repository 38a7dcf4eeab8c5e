"""Cross-entropy on pseudo-labels (method 4.3), weighted by the teacher's confidence in the image or the pixel."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

IGNORE = -1  # a pixel without a pseudo-label


def unsupervised(
    logits: Tensor, labels: Tensor, confidence: Tensor, *, sure: float = 0.97, by: Literal["image", "pixel"] = "image"
) -> Tensor:
    """Mean of w CE over the pixels that have a pseudo-label (decision 3).

    by image: w is the fraction of confident pixels in the image (ReCo); by pixel: 1 where the teacher is confident,
    0 elsewhere (FixMatch).
    logits B C H W, labels and confidence B H W.
    """
    known = labels != IGNORE
    weight = ((confidence >= sure) & known).float()
    if by == "image":
        weight = (weight.flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1))[:, None, None]
    loss = F.cross_entropy(logits.float(), labels, ignore_index=IGNORE, reduction="none")
    return (weight * loss).sum() / known.sum().clamp(min=1)
