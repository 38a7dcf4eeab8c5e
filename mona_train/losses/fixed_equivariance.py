"""Equivariance towards a fixed answer: what was known of a picture should be found again after T has moved it.

Unlike in L_eqv of method 4.4, the target is not the student's own answer, which would pull a network that is wrong
towards itself; and background counts, because without it growing every organ costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mona_train.augment import SamplingGrid

LEAST = 1e-6  # the part of a pixel that comes from inside the frame, below which it does not count


def fixed_equivariance(target: Tensor, mask: Tensor, grid: SamplingGrid, logits: Tensor) -> Tensor:
    """KL(T(target) || softmax(logits)), averaged over the pixels of T(mask); only `logits` get a gradient.

    target  B C H W  probabilities before T; one-hot where there is a label
    mask    B H W    pixels whose target is trusted; moved by T it is soft at its edges, and 0 beyond the frame
    logits  B C H W  of the moved picture
    """
    with torch.no_grad():
        trusted = mask.float()[:, None]
        moved = grid.bilinear(torch.cat([target.float() * trusted, trusted], 1))
        weight = moved[:, -1]
        # A target between pixels is the mean of those that are trusted.
        wanted = moved[:, :-1] / weight.clamp(min=LEAST)[:, None]
    log_q = logits.float().log_softmax(1)
    divergence = (torch.xlogy(wanted, wanted) - wanted * log_q).sum(1)
    return (weight * divergence).sum() / weight.sum().clamp(min=1)
