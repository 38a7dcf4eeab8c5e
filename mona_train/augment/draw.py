"""Random numbers, always from a CPU generator: a seed gives the same augmentation on every device."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

Range = tuple[float, float]
Size = tuple[int, int]  # rows columns


def uniform(generator: Generator, span: Range, *shape: int) -> Tensor:
    """Float64 in [low, high)."""
    low, high = span
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def integers(generator: Generator, low: int, high: int, *shape: int) -> Tensor:
    """Int64 in low..high, both included."""
    return torch.randint(low, high + 1, shape, generator=generator)


def coins(generator: Generator, probability: float, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64) < probability
