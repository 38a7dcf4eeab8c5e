"""Heads that embed a slice, or windows of its prediction, as 512 numbers (method 2.2).

Every linear layer has a bias, even before a norm that cancels it, to match the published parameter counts.
Batch norm over a batch of six is noisy, hence the choice of norm.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["bn", "ln", "none"]
DIM = 512
CELLS = 8  # a window becomes 8 x 8 cells of 8 numbers each: 512, whatever the number of classes


class MLP(nn.Sequential):  # type: ignore[misc]
    """Linear, norm, ReLU, linear; rows (..., inputs) with any leading axes, over which batch norm is computed."""

    def __init__(self, inputs: int, dim: int = DIM, *, norm: Norm = "bn") -> None:
        super().__init__(nn.Linear(inputs, dim), _norm(norm, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows.flatten(0, -2)).view(*rows.shape[:-1], -1)


class ProjectionHead(MLP):
    """h: the bottleneck (B, inputs, h, w), averaged over its pixels, to B x dim; `inputs` is UNet.channels[0]."""

    def forward(self, bottleneck: Tensor) -> Tensor:
        return super().forward(bottleneck.mean((2, 3)))


class Predictor(MLP):
    """h', for the student only: without it, student and teacher could agree on a constant."""

    def __init__(self, dim: int = DIM, *, norm: Norm = "bn") -> None:
        super().__init__(dim, dim, norm=norm)


class LocalHead(nn.Module):  # type: ignore[misc]
    """Windows (..., C, h, w) of the logits to (..., 512), all in one call."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.cells = nn.Sequential(
            nn.Conv2d(classes, 2 * classes, 1), nn.ReLU(), nn.Conv2d(2 * classes, DIM // CELLS**2, 1)
        )

    def forward(self, windows: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(windows.flatten(0, -4), CELLS)
        return self.cells(pooled).flatten(1).view(*windows.shape[:-3], -1)


class LocalPredictor(Predictor):
    """The predictor of windows (B, n, 512): one for all of them, so its batch norm sees B n rows."""


def _norm(norm: Norm, features: int) -> nn.Module:
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, found {norm!r}")
    return {"bn": nn.BatchNorm1d, "ln": nn.LayerNorm, "none": nn.Identity}[norm](features)
