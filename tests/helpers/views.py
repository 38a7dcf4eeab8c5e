"""What the tests of augmentation share: batches to move, and where their points lie."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.steps import seeded

SIZES = [(256, 256), (64, 64), (48, 80), (63, 41)]


def blobs(count: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    """Labels 0..3 (B, H, W), uint8: smooth regions of many pixels."""
    rough = torch.rand(count, 4, 5, 5, generator=seeded(seed))
    return F.interpolate(rough, size, mode="bicubic", align_corners=True).argmax(1).to(torch.uint8)


def batch(count: int, size: tuple[int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = seeded(seed)
    return torch.rand(count, 1, *size, generator=generator), blobs(count, size, seed), torch.rand(count, *size)


def pixels(points: Tensor) -> Tensor:
    """Points or displacements (..., 2, H, W) of a view in its own pixels."""
    height, width = points.shape[-2:]
    return points * torch.tensor([(width - 1) / 2, (height - 1) / 2]).to(points)[:, None, None]
