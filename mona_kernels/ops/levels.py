"""Helpers for the ops on feature pyramids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def added_up_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: half precision is accumulated in float32; float64 stays, for gradcheck."""
    return torch.promote_types(dtype, torch.float32)


def as_buffers(levels: Sequence[Tensor]) -> list[Tensor]:
    """Levels as C++ expects them: one dtype, no gradient; half-precision levels are copied, others are not."""
    dtype = added_up_in(levels[0].dtype)
    return [level.detach().to(dtype) for level in levels]


def check_levels(levels: Sequence[Tensor], images: int) -> None:
    if not levels or any(f.ndim != 4 or len(f) != images or f.dtype != levels[0].dtype for f in levels):
        found = ", ".join(f"{tuple(f.shape)} {f.dtype}" for f in levels) or "none"
        raise ValueError(f"expected levels ({images}, c, h, w) of the same dtype, found {found}")
