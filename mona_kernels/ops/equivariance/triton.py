"""Equivariance on a GPU: warp, softmax, both divergences and the mask in one pass over the pixels.

Forward writes two sums for each block of pixels; backward computes the same again and writes the gradient of the
logits: reading the maps twice costs less than a gradient written, read and written again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mona_kernels.ops.equivariance.reference import LEAST
from mona_kernels.ops.tuning import block, require_floats

ELEMENTS = 512  # per tile, pixels x classes: 4 per thread


def equivariance(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and what the backward pass needs: the sum of the warped mask over each image (B)."""
    require_floats("equivariance", probabilities=probabilities, points=points, logits=logits)
    arguments, grid, meta = _launch(probabilities, mask, points, logits)
    parts = torch.empty((2, *reversed(grid)), dtype=torch.float32, device=logits.device)
    _divergence[grid](*arguments, parts, **meta)
    loss, weight = parts.sum(2)
    return (loss / (weight + 1e-7)).mean(), weight


def equivariance_backward(
    grad: Tensor, weight: Tensor, probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor
) -> Tensor:
    arguments, grid, meta = _launch(probabilities, mask, points, logits)
    out, scale = torch.empty_like(logits), grad / len(logits) / (weight + 1e-7)
    _divergence_backward[grid](*arguments, scale, out, *out.stride(), **meta)
    return out


def _launch(
    probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor
) -> tuple[list[Any], tuple[int, int], dict[str, Any]]:
    batch, classes, height, width = logits.shape
    tile = block(classes, 256, 1)
    if mask.dtype == torch.bool:
        mask = mask.view(torch.uint8)
    tensors = probabilities, mask, points, logits
    strides = [stride for tensor in tensors for stride in tensor.stride()]
    meta = {"PIXELS": ELEMENTS // tile, "CLASSES": tile, "LEAST": LEAST, "LOWEST": math.log(LEAST)}
    grid = triton.cdiv(height * width, ELEMENTS // tile), batch
    return [*tensors, *strides, height, width, classes], grid, meta


@triton.jit
def _tap(probabilities, mask, y, x, share, stride_y, stride_x, mask_y, mask_x, height, width, there):
    """One tap's share of the warped probabilities, mask and map of ones; zeros outside the image."""
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    share = tl.where(inside, share, 0.0)
    where = (y * stride_y + x * stride_x)[:, None]
    p = tl.load(probabilities + where, mask=there & inside[:, None], other=0.0).to(tl.float32)
    m = tl.load(mask + y * mask_y + x * mask_x, mask=inside, other=0).to(tl.float32)
    return p * share[:, None], m * share, share


@triton.jit
def _compare(
    probabilities, mask, points, logits,
    p_b, p_c, p_y, p_x, m_b, m_y, m_x, g_b, g_y, g_x, g_2, l_b, l_c, l_y, l_x,
    height, width, classes, PIXELS: tl.constexpr, CLASSES: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """For a tile (pixels, classes): the target, the log softmax of the logits, and the weight of each pixel."""
    b = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    y, x, c = place // width, place % width, tl.arange(0, CLASSES)
    here = place < height * width
    there = here[:, None] & (c < classes)[None, :]
    grid = points + b * g_b + y * g_y + x * g_x
    # grid_sample with corners aligned.  A point far outside, or NaN, is moved to just outside, because large floats
    # cannot be converted to integers.
    right = (tl.load(grid, mask=here, other=-2.0).to(tl.float32) + 1) / 2 * (width - 1)
    lower = (tl.load(grid + g_2, mask=here, other=-2.0).to(tl.float32) + 1) / 2 * (height - 1)
    right = tl.minimum(tl.maximum(right, -2.0), width + 1.0)
    lower = tl.minimum(tl.maximum(lower, -2.0), height + 1.0)
    x0, y0 = tl.floor(right), tl.floor(lower)
    fx, fy = right - x0, lower - y0
    x0, y0 = x0.to(tl.int32), y0.to(tl.int32)
    image, own = probabilities + b * p_b + c[None, :] * p_c, mask + b * m_b
    target, weight, inside = _tap(image, own, y0, x0, (1 - fy) * (1 - fx), p_y, p_x, m_y, m_x, height, width, there)
    p, m, s = _tap(image, own, y0, x0 + 1, (1 - fy) * fx, p_y, p_x, m_y, m_x, height, width, there)
    target, weight, inside = target + p, weight + m, inside + s
    p, m, s = _tap(image, own, y0 + 1, x0, fy * (1 - fx), p_y, p_x, m_y, m_x, height, width, there)
    target, weight, inside = target + p, weight + m, inside + s
    p, m, s = _tap(image, own, y0 + 1, x0 + 1, fy * fx, p_y, p_x, m_y, m_x, height, width, there)
    target, weight, inside = target + p, weight + m, inside + s
    target = tl.maximum(target / tl.maximum(inside, LEAST)[:, None], LEAST)
    weight = tl.where(here & (inside > 0), weight, 0.0)
    where = b * l_b + (y * l_y + x * l_x)[:, None] + c[None, :] * l_c
    logit = tl.load(logits + where, mask=there, other=float("-inf")).to(tl.float32)
    logit = tl.where(here[:, None], logit, 0.0)  # or pixels beyond the image would make -inf - -inf
    logit -= tl.max(logit, 1)[:, None]
    log_q = logit - tl.log(tl.sum(tl.exp(logit), 1))[:, None]
    return target, log_q, weight, there, y, x, c


@triton.jit
def _divergence(
    probabilities, mask, points, logits,
    p_b, p_c, p_y, p_x, m_b, m_y, m_x, g_b, g_y, g_x, g_2, l_b, l_c, l_y, l_x,
    height, width, classes, parts,
    PIXELS: tl.constexpr, CLASSES: tl.constexpr, LEAST: tl.constexpr, LOWEST: tl.constexpr,
):  # fmt: skip
    target, log_q, weight, there, _, _, _ = _compare(
        probabilities, mask, points, logits,
        p_b, p_c, p_y, p_x, m_b, m_y, m_x, g_b, g_y, g_x, g_2, l_b, l_c, l_y, l_x,
        height, width, classes, PIXELS, CLASSES, LEAST,
    )  # fmt: skip
    log_q = tl.maximum(log_q, LOWEST)
    # KL(P||Q) + KL(Q||P) = sum over classes of (p - q)(log p - log q)
    symmetric = tl.sum(tl.where(there, (target - tl.exp(log_q)) * (tl.log(target) - log_q), 0.0), 1)
    where = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(parts + where, tl.sum(weight * symmetric, 0))
    tl.store(parts + tl.num_programs(1) * tl.num_programs(0) + where, tl.sum(weight, 0))


@triton.jit
def _divergence_backward(
    probabilities, mask, points, logits,
    p_b, p_c, p_y, p_x, m_b, m_y, m_x, g_b, g_y, g_x, g_2, l_b, l_c, l_y, l_x,
    height, width, classes, scale, out, o_b, o_c, o_y, o_x,
    PIXELS: tl.constexpr, CLASSES: tl.constexpr, LEAST: tl.constexpr, LOWEST: tl.constexpr,
):  # fmt: skip
    target, log_q, weight, there, y, x, c = _compare(
        probabilities, mask, points, logits,
        p_b, p_c, p_y, p_x, m_b, m_y, m_x, g_b, g_y, g_x, g_2, l_b, l_c, l_y, l_x,
        height, width, classes, PIXELS, CLASSES, LEAST,
    )  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    clamped = tl.maximum(log_q, LOWEST)
    q = tl.exp(clamped)
    slope = tl.where(there & (log_q >= LOWEST), q - target - q * (tl.log(target) - clamped), 0.0)  # of log q
    slope -= tl.exp(log_q) * tl.sum(slope, 1)[:, None]
    value = slope * (weight * tl.load(scale + b))[:, None]
    where = b * o_b + (y * o_y + x * o_x)[:, None] + c[None, :] * o_c
    tl.store(out + where, value, mask=there)
