"""NT-Xent: every row should be nearer to its positives than to other rows.

Chen et al., "A simple framework for contrastive learning of visual representations", 2020; with several positives per
row as in Khosla et al., "Supervised contrastive learning", 2020, equation 2 (the mean is outside the logarithm).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.losses.mean_where import mean_where


def nt_xent(rows: Tensor, positives: Tensor, *, temperature: float, negatives: Tensor | None = None) -> Tensor:
    """Mean over i and its positives j of -log(exp(s_ij / t) / sum over k != i of exp(s_ik / t)); s is the cosine.

    rows       N D       normalised here, in float32 even under autocast
    positives  N N bool  which pairs are positive; the diagonal does not count
    negatives  N N bool  if given, the sum is over j and the negatives of i alone: positives do not compete

    The mean is first over the positives of a row, then over the rows that have any; without such a row, the loss is 0.
    """
    square = len(rows), len(rows)
    if rows.ndim != 2 or positives.shape != square or (negatives is not None and negatives.shape != square):
        found = ", ".join(str(tuple(t.shape)) for t in (rows, positives, negatives) if t is not None)
        raise ValueError(f"expected rows (N, D), positives and negatives (N, N), found {found}")
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    positives = positives & ~itself
    with torch.autocast(rows.device.type, enabled=False):  # a cosine in bfloat16 is off by 0.04 once divided by 0.1
        unit = F.normalize(rows.float(), dim=1)
        similar = unit @ unit.T / temperature
        apart = itself if negatives is None else itself | ~negatives
        others = similar.masked_fill(apart, -torch.inf).logsumexp(1, keepdim=True)
        distances = others - similar if negatives is None else F.softplus(others - similar)
        return mean_where(positives, distances)  # a row that is alone has infinite ones, which do not count
