"""Pyramid gather on a GPU: a program reads the four taps of a few pixels of one level, as many channels as fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mona_kernels.ops.tuning import block, require_floats

ELEMENTS = 1024  # per tile, pixels x channels: four pointers for each, and 8 elements per thread


def pyramid_gather(features: Sequence[Tensor], pixels: Tensor, size: tuple[int, int]) -> Tensor:
    require_floats("pyramid_gather", **{f"level {i}": level for i, level in enumerate(features)})
    rows = torch.empty((len(pixels), sum(f.shape[1] for f in features)), dtype=torch.float32, device=pixels.device)
    start = 0
    for level in features:
        _launch(_gather, level, rows[:, start : start + level.shape[1]], pixels, size)
        start += level.shape[1]
    return rows


def pyramid_gather_backward(
    grad: Tensor, features: Sequence[Tensor], pixels: Tensor, size: tuple[int, int]
) -> list[Tensor]:
    """Gradients of the levels, accumulated with float32 atomics: the last bits may differ from run to run."""
    grads, start = [], 0
    for level in features:
        out = torch.zeros_like(level, dtype=torch.float32)
        _launch(_scatter, out, grad[:, start : start + level.shape[1]], pixels, size)
        grads.append(out.to(level.dtype))
        start += level.shape[1]
    return grads


def _launch(kernel: triton.JITFunction, level: Tensor, rows: Tensor, pixels: Tensor, size: tuple[int, int]) -> None:
    channels = block(level.shape[1], 128)
    grid = triton.cdiv(len(pixels), ELEMENTS // channels), triton.cdiv(level.shape[1], channels)
    if len(pixels):
        kernel[grid](
            level,
            rows,
            pixels.contiguous(),
            *level.stride(),
            *rows.stride(),
            len(pixels),
            *level.shape[1:],
            *size,
            PIXELS=ELEMENTS // channels,
            CHANNELS=channels,
        )


@triton.jit
def _taps(position, size, source):
    """As in the reference: left tap, right tap, weight of the right; computed in integers."""
    span = tl.maximum(size - 1, 1)
    scaled = position * (source - 1)
    left = scaled // span
    return left, tl.minimum(left + 1, source - 1), (scaled - left * span).to(tl.float32) / span.to(tl.float32)


@triton.jit
def _corners(level, pixels, n, c, stride_b, stride_c, stride_y, stride_x, count, channels, h, w, height, width):
    """Addresses of the taps of a tile (pixels, channels), which exist, and weights of the lower and right ones."""
    pixel = tl.load(pixels + n, mask=n < count, other=-1)
    here = (pixel >= 0)[:, None] & (c < channels)[None, :]
    pixel = tl.maximum(pixel, 0)
    place = (pixel % (height * width)).to(tl.int32)
    image = level + (pixel // (height * width) * stride_b)[:, None] + c[None, :] * stride_c
    y0, y1, fy = _taps(place // width, height, h)
    x0, x1, fx = _taps(place % width, width, w)
    left, right = (x0 * stride_x)[:, None], (x1 * stride_x)[:, None]
    upper, lower = image + (y0 * stride_y)[:, None], image + (y1 * stride_y)[:, None]
    return upper + left, upper + right, lower + left, lower + right, here, fy[:, None], fx[:, None]


@triton.jit
def _gather(
    level,
    rows,
    pixels,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    stride_row,
    stride_column,
    count,
    channels,
    h,
    w,
    height,
    width,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    n = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p00, p01, p10, p11, here, fy, fx = _corners(
        level, pixels, n, c, stride_b, stride_c, stride_y, stride_x, count, channels, h, w, height, width
    )
    above = tl.load(p00, mask=here, other=0.0).to(tl.float32) * (1 - fx)
    above += tl.load(p01, mask=here, other=0.0).to(tl.float32) * fx
    below = tl.load(p10, mask=here, other=0.0).to(tl.float32) * (1 - fx)
    below += tl.load(p11, mask=here, other=0.0).to(tl.float32) * fx
    where = n.to(tl.int64)[:, None] * stride_row + c[None, :] * stride_column
    tl.store(rows + where, above * (1 - fy) + below * fy, mask=(n < count)[:, None] & (c < channels)[None, :])


@triton.jit
def _scatter(
    level,
    rows,
    pixels,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    stride_row,
    stride_column,
    count,
    channels,
    h,
    w,
    height,
    width,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    n = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p00, p01, p10, p11, here, fy, fx = _corners(
        level, pixels, n, c, stride_b, stride_c, stride_y, stride_x, count, channels, h, w, height, width
    )
    where = n.to(tl.int64)[:, None] * stride_row + c[None, :] * stride_column
    value = tl.load(rows + where, mask=here, other=0.0).to(tl.float32)
    above, below = value * (1 - fy), value * fy
    # Nothing reads these sums before the kernel ends, so no memory order is needed.
    tl.atomic_add(p00, above * (1 - fx), mask=here, sem="relaxed")
    tl.atomic_add(p01, above * fx, mask=here, sem="relaxed")
    tl.atomic_add(p10, below * (1 - fx), mask=here, sem="relaxed")
    tl.atomic_add(p11, below * fx, mask=here, sem="relaxed")
