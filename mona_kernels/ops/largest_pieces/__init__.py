"""The largest connected piece of each class on label maps: what makes pseudo-labels of a network's argmax cleaner."""

from __future__ import annotations

import torch
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.largest_pieces import reference

__all__ = ["largest_pieces"]


def largest_pieces(labels: Tensor) -> Tensor:
    if labels.ndim != 3 or labels.dtype != torch.int64:
        raise ValueError(f"expected label maps (B, H, W) of int64, found {tuple(labels.shape)} of {labels.dtype}")
    if labels.device.type != "cpu":
        return reference.largest_pieces(labels)
    out = torch.empty(labels.shape, dtype=torch.int64)
    _training.largest_pieces(labels.contiguous(), out, torch.get_num_threads())
    return out


largest_pieces.__doc__ = reference.largest_pieces.__doc__
