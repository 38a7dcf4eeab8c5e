"""The representation head of method 2.3: linear from end to end, so it is one matrix on the rows of the pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from mona_train.networks.unet import CHANNELS


class RepresentationHead(nn.Module):  # type: ignore[misc]
    """The parameters are the factors of the published feature pyramid, which affect training; their product is used.

    Coarsest level first: x <- x + W_l x, upsample x, append the next level, and W_4 to `dim` at full size.  All
    are 1x1 without bias.  Upsampling acts on each channel separately and so commutes with mixing channels.
    The student's predictor is two more dim x dim factors, as published; the teacher has none.
    """

    def __init__(
        self, channels: Sequence[int] = tuple(reversed(CHANNELS)), dim: int = 512, *, predictor: bool = False
    ) -> None:
        super().__init__()
        *residual, last = accumulate(channels)
        self.channels, self.dim = tuple(channels), dim
        self.mix = nn.ModuleList(nn.Linear(n, n, bias=False) for n in residual)
        self.project = nn.Linear(last, dim, bias=False)
        self.predictor = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(2 if predictor else 0))

    def collapsed(self, *, predict: bool = True) -> Tensor:
        """The head as one matrix (sum of channels, dim), differentiable; `predict=False` stops before the predictor."""
        product = self.project.weight
        with torch.autocast(product.device.type, enabled=False):  # round once, not after each of seven factors
            for layer in self.predictor if predict else ():
                product = layer.weight @ product
            return _Mixed.apply(product.T, *(layer.weight for layer in self.mix))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of the pyramid (N, sum of channels) to representations (N, dim)."""
        return rows @ self.collapsed()


class _Mixed(torch.autograd.Function):  # type: ignore[misc]
    """A matrix (sum of channels, dim) behind x <- x + W_l x of every level: its first n rows times I + W_l^T, for each
    W_l (n, n), the last one first.

    Written by hand, because autograd would copy the rows that a level does not change, and add up their gradients.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, *weights: Tensor) -> Tensor:
        before = []  # the rows that each level is about to mix
        out = product.clone(memory_format=torch.contiguous_format)
        for weight in reversed(weights):
            before.append(out[: len(weight)].clone())
            out[: len(weight)].addmm_(weight.T, before[-1])
        ctx.save_for_backward(*weights, *reversed(before))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        half = len(ctx.saved_tensors) // 2
        weights, before = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        grad, by_weight = grad.clone(memory_format=torch.contiguous_format), []
        for weight, rows in zip(weights, before, strict=True):
            mine = grad[: len(weight)].clone()
            by_weight.append(rows @ mine.T)
            grad[: len(weight)].addmm_(weight, mine)
        return grad, *by_weight
