"""The sum over a mask of U f is the product of U^T mask with f: masks go down the pyramid, features never go up."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_kernels.ops.pyramid_gather.reference import taps


def class_sums(features: Sequence[Tensor], known: Tensor, classes: int) -> Tensor:
    """Sums (C, sum of c_l) over the pixels of each class, of all levels (B, c_l, h_l, w_l) upsampled in one step.

    `known` (B, H, W) holds class ids; pixels with any other value, such as -1, are left out.  The C masks need the most
    memory.  The features get gradients.
    """
    size = known.shape[1:]
    masks = known[:, None] == torch.arange(classes, device=known.device)[:, None, None]  # B C H W
    sums = []
    for level in features:
        f = level.to(torch.promote_types(level.dtype, torch.float32))
        weights = masks.to(f.dtype)
        if f.shape[2:] != size:
            rows, columns = (interpolation(n, m, f) for n, m in zip(size, f.shape[2:], strict=True))
            weights = rows.T @ weights @ columns  # B C h w: bilinear upsampling is rows x f x columns^T
        sums.append((weights.flatten(2) @ f.flatten(2).transpose(1, 2)).sum(0))
    return torch.cat(sums, 1)


def interpolation(size: int, source: int, like: Tensor) -> Tensor:
    """The matrix (size, source) of linear upsampling along one axis, corner on corner; two entries in a row."""
    left, right, share = taps(torch.arange(size, device=like.device), size, source)
    matrix = F.one_hot(left, source) * (1 - share)[:, None] + F.one_hot(right, source) * share[:, None]
    return matrix.to(like.dtype)
