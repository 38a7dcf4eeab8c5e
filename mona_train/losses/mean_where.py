"""The mean that contrastive losses take: over what counts in each row, then over the rows in which anything does."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_where(counts: Tensor, values: Tensor) -> Tensor:
    """Mean of values (N, K) over those that count (N, K, bool) of a row, then over rows that have any; else 0."""
    number = counts.sum(1)
    # Where, not a product: what does not count may be infinite, and 0 times infinity is not 0.
    means = torch.where(counts, values, 0).sum(1) / number.clamp(min=1)
    return means.sum() / (number > 0).sum().clamp(min=1)
