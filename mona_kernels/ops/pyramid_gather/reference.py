"""Four taps per level: `F.interpolate(..., mode="bilinear", align_corners=True)` at some pixels only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def pyramid_gather(features: Sequence[Tensor], pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Rows (N, sum of c_l) of all levels (B, c_l, h_l, w_l), each upsampled in one step to `size`, at `pixels`.

    Pixels (N) are flat indices into B H W; -1 gives a row of zeros without a gradient.  The gradients of the features
    are accumulated in float32 or better, and are bit for bit the same in every run.
    """
    height, width = size
    present = (pixels >= 0)[:, None]
    image, place = pixels.clamp_min(0) // (height * width), pixels.clamp_min(0) % (height * width)
    rows = []
    for level in features:
        h, w = level.shape[2:]
        y0, y1, fy = taps(place // width, height, h)
        x0, x1, fx = taps(place % width, width, w)
        index = image[:, None] * (h * w) + torch.stack([y0 * w + x0, y0 * w + x1, y1 * w + x0, y1 * w + x1], 1)
        weight = torch.stack([(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx], 1) * present
        rows.append(_Taps.apply(level, index, weight.to(torch.promote_types(level.dtype, torch.float32))))
    return torch.cat(rows, 1)


def taps(position: Tensor, size: int, source: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where positions 0..size-1 fall among `source` samples, corners aligned: left tap, right tap, weight of the right.

    Computed in integers: a position on a sample has weight 0, whatever the float type.
    """
    span = max(size - 1, 1)
    scaled = position * (source - 1)
    left = scaled // span
    return left, (left + 1).clamp_max(source - 1), (scaled - left * span).double() / span


class _Taps(torch.autograd.Function):  # type: ignore[misc]
    """Weighted sums of rows of one level: f (B, c, h, w) at index (N, taps) into B h w.

    A custom function because of its backward pass: autograd's scatter for `f[...]` adds with atomics, in an order that
    changes from run to run; the scatter of an embedding does not.
    """

    @staticmethod
    def forward(ctx: Any, level: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(index, weight)
        ctx.shape, ctx.dtype = level.shape, level.dtype
        area = level.shape[2] * level.shape[3]
        rows = level.flatten(2).transpose(1, 2)[index // area, index % area]  # N taps c
        return (rows * weight[..., None]).sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        index, weight = ctx.saved_tensors
        b, c, h, w = ctx.shape
        rows = grad[:, None] * weight[..., None]
        table = torch.ops.aten.embedding_dense_backward(rows, index, b * h * w, -1, False)  # no padding, no scaling
        return table.view(b, h, w, c).permute(0, 3, 1, 2).to(ctx.dtype), None, None
