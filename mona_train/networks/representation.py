"""The representation head of METHOD 2.3: linear from end to end, so it is one matrix on the rows of the pyramid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from mona_train.networks.unet import CHANNELS


class RepresentationHead(nn.Module):  # type: ignore[misc]
    """Parameters are the factors of the published feature pyramid, which shape how it learns; their product is used.

    Coarsest level first: x <- x + W_l x, raise x, put the next level below it, and W_4 to `dim` at full size.  All
    are 1x1 without bias.  Upsampling acts on channels one by one and so changes places with the mixing of channels.
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
        product = self.project.weight.new_zeros(0, 0)  # nothing is mixed yet
        for layer in self.mix:
            product = _Residual.apply(product, layer.weight)
        last, mixed = self.project.weight.T, product.shape[1]
        product = torch.cat([product @ last[:mixed], last[mixed:]])
        for layer in self.predictor if predict else ():
            product = product @ layer.weight.T
        return product

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of the pyramid (N, sum of channels) to representations (N, dim)."""
        return rows @ self.collapsed()


class _Residual(torch.autograd.Function):  # type: ignore[misc]
    """What was mixed so far (m, m) and the levels that join here, both through I + W^T (n, n), without making either.

    These are the largest matrices of a step beside its features, so they are written once, forward and backward.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(product, weight)
        m, factor = len(product), weight.T
        out = torch.empty_like(weight)
        torch.mm(product, factor[:m], out=out[:m])
        out[:m, :m] += product
        out[m:] = factor[m:]
        out[m:, m:].diagonal().add_(1)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        product, weight = ctx.saved_tensors
        m = len(product)
        by_product = torch.addmm(grad[:m, :m], grad[:m], weight[:, :m])
        by_weight = torch.empty_like(weight)
        torch.mm(grad[:m].T, product, out=by_weight[:, :m])
        by_weight[:, m:] = grad[m:].T
        return by_product, by_weight
