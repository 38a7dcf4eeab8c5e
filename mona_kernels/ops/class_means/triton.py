"""Class sums on a GPU: masks are pushed down to a level's size, then multiplied with it on tensor cores.

For each level two kernels.  `_push_down` makes the weights U^T 1_c (C, B h w), a hat around every pixel of the level;
the level of full size needs none, its weights are the masks.  `_reduce` multiplies them with the features in slices of
pixels, whose partial sums are added in one order: the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mona_kernels.ops.tuning import block, config, require_floats, tuned

PROGRAMS = 1024  # the target: a few for every multiprocessor of the largest cards
CLASSES, CHANNELS = 64, 32  # at most, per tile


def class_sums(features: Sequence[Tensor], known: Tensor, classes: int) -> Tensor:
    known = known.contiguous()
    require_floats("class_means", **{f"level {i}": level for i, level in enumerate(features)})
    sums = torch.empty((classes, sum(f.shape[1] for f in features)), dtype=torch.float32, device=known.device)
    start = 0
    for level in features:
        b, channels, h, w = level.shape
        identity, total = (h, w) == known.shape[1:], b * h * w
        weights = known if identity else _weights(known, classes, h, w)
        tile = block(classes, CLASSES), block(channels, CHANNELS)
        across = triton.cdiv(classes, tile[0]) * triton.cdiv(channels, tile[1])
        slices = max(1, min(triton.cdiv(total, 128), PROGRAMS // across))
        span = triton.cdiv(triton.cdiv(total, slices), 128) * 128
        slices = triton.cdiv(total, span)
        parts = torch.empty((slices, classes, channels), dtype=torch.float32, device=known.device)
        _tuned_reduce[(slices, triton.cdiv(channels, tile[1]), triton.cdiv(classes, tile[0]))](
            level,
            weights,
            parts,
            *level.stride(),
            h * w,
            w,
            total,
            channels,
            classes,
            span,
            IDENTITY=identity,
            CLASSES=tile[0],
            CHANNELS=tile[1],
        )
        torch.sum(parts, 0, out=sums[:, start : start + channels])
        start += channels
    return sums


def class_sums_backward(grad: Tensor, features: Sequence[Tensor], known: Tensor, classes: int) -> list[Tensor]:
    known, grads, start = known.contiguous(), [], 0
    for level in features:
        b, channels, h, w = level.shape
        identity, total = (h, w) == known.shape[1:], b * h * w
        out = torch.empty_like(level)
        tile = block(channels, CHANNELS)
        _spread[(triton.cdiv(total, 64), triton.cdiv(channels, tile))](
            grad[:, start : start + channels],
            known if identity else _weights(known, classes, h, w),
            out,
            *grad.stride(),
            *out.stride(),
            h * w,
            w,
            total,
            channels,
            classes,
            IDENTITY=identity,
            CLASSES=block(classes, CLASSES // 2),
            CHANNELS=tile,
            PIXELS=64,
        )
        grads.append(out)
        start += channels
    return grads


def _weights(known: Tensor, classes: int, h: int, w: int) -> Tensor:
    b, height, width = known.shape
    weights = torch.empty((classes, b * h * w), dtype=torch.float32, device=known.device)
    _push_down[(triton.cdiv(b * h * w, 32), classes)](
        known, weights, height, width, h, w, b * h * w, _window(height, h), _window(width, w), BLOCK=32, STRIP=32
    )
    return weights


def _window(size: int, source: int) -> int:
    """The most pixels, of `size`, that the hat function of one of `source` samples covers."""
    return min(size, 2 * max(size - 1, 1) // (source - 1) + 1) if source > 1 else size


@triton.jit
def _first(position, size, source):
    """The first pixel whose left or right tap is the sample at `position`."""
    return tl.where(position > 0, (position - 1) * tl.maximum(size - 1, 1) // tl.maximum(source - 1, 1) + 1, 0)


@triton.jit
def _hat(pixel, position, size, source):
    """What the sample at `position` contributes to `pixel`: distances are whole numbers until the last division."""
    span = tl.maximum(size - 1, 1)
    distance = tl.abs(pixel * (source - 1) - position * span)
    share = 1 - distance.to(tl.float32) / span.to(tl.float32)
    return tl.where(pixel < size, tl.maximum(share, 0.0), 0.0)


@triton.jit
def _push_down(known, weights, height, width, h, w, total, rows, columns, BLOCK: tl.constexpr, STRIP: tl.constexpr):
    c = tl.program_id(1)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image, y, x = p // (h * w), p % (h * w) // w, p % w
    top, left = _first(y, height, h), _first(x, width, w)
    weight = tl.zeros([BLOCK], tl.float32)
    for i in range(rows):
        row = top + i
        share = _hat(row, y, height, h)
        for j in range(0, columns, STRIP):
            column = left[:, None] + j + tl.arange(0, STRIP)[None, :]
            there = (p < total)[:, None] & (row < height)[:, None] & (column < width)
            label = tl.load(known + ((image * height + row) * width)[:, None] + column, mask=there, other=-1)
            weight += share * tl.sum(tl.where(label == c, _hat(column, x[:, None], width, w), 0.0), 1)
    tl.store(weights + c.to(tl.int64) * total + p, weight, mask=p < total)


@triton.jit
def _reduce(
    level,
    weights,
    parts,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    area,
    width,
    total,
    channels,
    classes,
    span,
    IDENTITY: tl.constexpr,
    CLASSES: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    c = tl.program_id(2) * CLASSES + tl.arange(0, CLASSES)
    product = tl.zeros([CLASSES, CHANNELS], tl.float32)
    for start in range(part * span, tl.minimum(total, (part + 1) * span), PIXELS):
        p = start + tl.arange(0, PIXELS)
        place = p % area
        where = (p // area).to(tl.int64) * stride_b + (place // width) * stride_y + (place % width) * stride_x
        there = (p < total)[:, None] & (channel < channels)[None, :]
        f = tl.load(level + where[:, None] + channel[None, :] * stride_c, mask=there, other=0.0)
        if IDENTITY:
            label = tl.load(weights + p, mask=p < total, other=-1)
            weight = tl.where(label[None, :] == c[:, None], 1.0, 0.0).to(f.dtype)
        else:
            rows = c.to(tl.int64)[:, None] * total + p[None, :]
            weight = tl.load(weights + rows, mask=(c < classes)[:, None] & (p < total)[None, :], other=0.0)
            f = f.to(tl.float32)
        # Three passes of tf32 keep float32's accuracy on tensor cores; half types are multiplied as they are.
        product = tl.dot(weight, f, product, input_precision="tf32x3")
    where = (part.to(tl.int64) * classes + c)[:, None] * channels + channel[None, :]
    tl.store(parts + where, product, mask=(c < classes)[:, None] & (channel < channels)[None, :])


_tuned_reduce = tuned(
    _reduce,
    [config(4, 3, PIXELS=64), config(4, 4, PIXELS=32)],
    ["area", "channels", "classes"],
)


@triton.jit
def _spread(
    grad,
    weights,
    out,
    stride_g,
    stride_gc,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    area,
    width,
    total,
    channels,
    classes,
    IDENTITY: tl.constexpr,
    CLASSES: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    if IDENTITY:
        label = tl.load(weights + p, mask=p < total, other=-1)
        some = ((label >= 0) & (label < classes))[:, None] & (channel < channels)[None, :]
        where = label.to(tl.int64)[:, None] * stride_g + channel[None, :] * stride_gc
        value = tl.load(grad + where, mask=some, other=0.0)
    else:
        value = tl.zeros([PIXELS, CHANNELS], tl.float32)
        for first in range(0, classes, CLASSES):
            c = first + tl.arange(0, CLASSES)
            rows = c.to(tl.int64)[None, :] * total + p[:, None]
            weight = tl.load(weights + rows, mask=(c < classes)[None, :] & (p < total)[:, None], other=0.0)
            where = c[:, None] * stride_g + channel[None, :] * stride_gc
            g = tl.load(grad + where, mask=(c < classes)[:, None] & (channel < channels)[None, :], other=0.0)
            value = tl.dot(weight, g, value, input_precision="tf32x3")
    place = p % area
    where = (p // area).to(tl.int64) * stride_b + (place // width) * stride_y + (place % width) * stride_x
    there = (p < total)[:, None] & (channel < channels)[None, :]
    tl.store(out + where[:, None] + channel[None, :] * stride_c, value, mask=there)
