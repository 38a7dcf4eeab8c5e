"""L_eqv in plain PyTorch: the specification of the fused kernels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = 1e-6  # probabilities are clamped to this before their logarithm is taken (decision 7)


def equivariance(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> Tensor:
    """KL(P||Q) + KL(Q||P), averaged over the masked pixels of each image, then over images.

    probabilities  B C H W  softmax F(x): warped, they are the target P, no gradient
    mask           B H W    foreground and confident; warped, it is soft at its edges
    points         B H W 2  T, in the form of grid_sample (corners aligned, zeros outside the image)
    logits         B C H W  F(T(x)): Q, which gets the gradient
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    with torch.no_grad():
        maps = torch.cat(
            [probabilities.to(dtype), mask.to(dtype)[:, None], torch.ones_like(mask, dtype=dtype)[:, None]], 1
        )
        warped = F.grid_sample(maps, points.to(dtype), "bilinear", "zeros", align_corners=True)
        # The part of each pixel that comes from inside the image: P is divided by it, and counts only if it is not 0.
        inside = warped[:, -1]
        target = (warped[:, :-2] / inside.clamp(min=LEAST)[:, None]).clamp(min=LEAST)
        weight = warped[:, -2] * (inside > 0)
    log_q = logits.to(dtype).log_softmax(1).clamp(min=math.log(LEAST))
    # KL(P||Q) + KL(Q||P) = sum over classes of (p - q)(log p - log q)
    symmetric = ((target - log_q.exp()) * (target.log() - log_q)).sum(1)  # B H W
    per_image = (weight * symmetric).sum((1, 2)) / (weight.sum((1, 2)) + 1e-7)
    return per_image.mean()
