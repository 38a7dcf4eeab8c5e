"""Contrast of rows in pairs: row i of one side belongs to row i of the other, or to none of them.

Used for slices (SimCVD) and for the positions of a map (MMS); method 6.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def matched(rows: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """InfoNCE: -log of the softmax over j of cos(row i, key j) / temperature at j = i; mean over rows.

    Both (..., N, D); rows are compared with the N keys of the same leading index.  Keys get no gradient.
    """
    return -F.log_softmax(_similarities(rows, keys, temperature), -1).diagonal(dim1=-2, dim2=-1).mean()


def unmatched(rows: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """The same with 0 for the pair's own logit, so that there is nothing to gain but by becoming unlike.

    log(1 + sum over j != i of exp(cos(row i, key j) / temperature)).
    """
    logits = _similarities(rows, keys, temperature)
    own = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits.masked_fill(own, 0.0).logsumexp(-1).mean()


def _similarities(rows: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Cosines / temperature (..., N, N), in float32."""
    if rows.shape != keys.shape or rows.ndim < 2:
        raise ValueError(f"expected rows and keys (..., N, D), found {tuple(rows.shape)} and {tuple(keys.shape)}")
    a, b = F.normalize(rows.float(), dim=-1), F.normalize(keys.detach().float(), dim=-1)
    return a @ b.transpose(-2, -1) / temperature
