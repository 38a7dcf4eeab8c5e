"""L_eqv in plain PyTorch: short, obvious, the specification of the fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6  # of a probability, before its logarithm (Decision 7)


def equivariance_loss(warped: Tensor, inside: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    """KL(P||Q) + KL(Q||P), averaged over the masked pixels of each image, then over images.

    warped  B C H W  T(softmax F(x)), zero beyond the frame: the target P, no gradient
    inside  B H W    T(1): what of P's pixel comes from within the frame; P is divided by it where it is positive
    logits  B C H W  F(T(x)): Q, where the gradient goes
    mask    B H W    T(foreground and confident), soft at its edges
    """
    with torch.no_grad():
        target = warped.float() / inside.float().clamp(min=LEAST)[:, None]
        target = target.clamp(min=LEAST)
        weight = mask.float() * (inside > 0)
    log_q = logits.float().log_softmax(1).clamp(min=float(torch.log(torch.tensor(LEAST))))
    # KL(P||Q) + KL(Q||P) = sum over classes of (p - q)(log p - log q)
    symmetric = ((target - log_q.exp()) * (target.log() - log_q)).sum(1)  # B H W
    per_image = (weight * symmetric).sum((1, 2)) / (weight.sum((1, 2)) + 1e-7)
    return per_image.mean()
