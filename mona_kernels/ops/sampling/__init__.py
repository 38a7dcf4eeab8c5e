"""Seeded draws of pixels and of ring slots, bit for bit the same on every backend (decision 12)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.cuda import on_cuda
from mona_kernels.ops.sampling import reference
from mona_kernels.ops.sampling.reference import KEY, LOW, Census, philox, philox_block, thresholds

__all__ = ["Census", "census", "draw_keys", "philox", "philox_block", "thresholds"]

Pixels = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def census(
    probabilities: Tensor,
    labels: Tensor,
    confidence: Tensor,
    *,
    likely: float,
    hard: float,
    fill: int,
    queries: int,
    seed: int,
    step: int,
    stream: int,
) -> Census:
    classes = probabilities.shape[1]
    if probabilities.shape != (len(labels), classes, *labels.shape[1:]) or confidence.shape != labels.shape:
        found = ", ".join(str(tuple(t.shape)) for t in (probabilities, labels, confidence))
        raise ValueError(f"expected probabilities (B, C, H, W), labels and confidence (B, H, W), found {found}")
    return Census(*_census(probabilities, labels, confidence, likely, hard, fill, queries, _signed(seed), step, stream))


def draw_keys(
    limits: Tensor, filled: Tensor, count: int, ring: int, *, queries: int, seed: int, step: int, stream: int
) -> Tensor:
    if filled.shape != limits.shape[1:]:
        raise ValueError(f"expected limits (C, V) and filled (V), found {tuple(limits.shape)}, {tuple(filled.shape)}")
    return _draw_keys(limits, filled, count, ring, queries, _signed(seed), step, stream)


census.__doc__, draw_keys.__doc__ = reference.census.__doc__, reference.draw_keys.__doc__


def _signed(seed: int) -> int:
    """The 64 bits of a seed as the int64 that an op can take."""
    return (seed + 2**63) % 2**64 - 2**63


@torch.library.custom_op("mona::census", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _census(
    probabilities: Tensor,
    labels: Tensor,
    confidence: Tensor,
    likely: float,
    hard: float,
    fill: int,
    queries: int,
    seed: int,
    step: int,
    stream: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    out = _like(probabilities, labels, fill, queries)
    _training.census(
        probabilities.detach().float(),
        labels.long(),
        confidence.detach().float(),
        *out,
        likely,
        hard,
        seed % 2**64,
        step & LOW,
        stream & LOW,
        torch.get_num_threads(),
    )
    return out


@_census.register_fake  # type: ignore[untyped-decorator]
def _(
    probabilities: Tensor, labels: Tensor, _: Tensor, likely: float, hard: float, fill: int, queries: int, *key: int
) -> Pixels:
    return _like(probabilities, labels, fill, queries)


@on_cuda(_census)
def _(*maps_and_numbers: Any) -> Pixels:
    from mona_kernels.ops.sampling import triton as kernels

    *maps, likely, hard, fill, queries, seed, step, stream = maps_and_numbers
    limits = {"likely": likely, "hard": hard, "fill": fill, "queries": queries}
    return tuple(kernels.census(*maps, **limits, seed=seed % 2**64, step=step, stream=stream))


def _like(probabilities: Tensor, labels: Tensor, fill: int, queries: int) -> Pixels:
    classes = probabilities.shape[1]
    known = labels.new_empty(labels.shape, dtype=torch.int16)
    counts, keys, hard, asking = (
        labels.new_empty(shape, dtype=torch.int64)
        for shape in ((classes,), (classes, fill), (classes,), (classes, queries))
    )
    return known, counts, keys, hard, asking


@torch.library.custom_op("mona::draw_keys", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _draw_keys(
    limits: Tensor, filled: Tensor, count: int, ring: int, queries: int, seed: int, step: int, stream: int
) -> Tensor:
    out = limits.new_empty((len(limits), queries, count))
    key = seed % 2**64, step & LOW, (stream | KEY) & LOW
    _training.draw_keys(
        limits.contiguous(), filled.contiguous(), out.view(len(limits), -1), ring, *key, torch.get_num_threads()
    )
    return out


@_draw_keys.register_fake  # type: ignore[untyped-decorator]
def _(limits: Tensor, filled: Tensor, count: int, ring: int, queries: int, *key: int) -> Tensor:
    return limits.new_empty((len(limits), queries, count))


@on_cuda(_draw_keys)
def _(limits: Tensor, filled: Tensor, count: int, ring: int, queries: int, *key: int) -> Tensor:
    from mona_kernels.ops.sampling import triton as kernels

    seed, step, stream = key
    return kernels.draw_keys(limits, filled, count, ring, queries=queries, seed=seed % 2**64, step=step, stream=stream)
