"""Rows of the upsampled feature pyramid at chosen pixels, without upsampling anything (method 9.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.cuda import on_cuda
from mona_kernels.ops.levels import added_up_in, as_buffers, check_levels
from mona_kernels.ops.pyramid_gather import reference
from mona_kernels.ops.pyramid_gather.reference import taps

__all__ = ["pyramid_gather", "taps"]


def pyramid_gather(features: Sequence[Tensor], pixels: Tensor, size: tuple[int, int]) -> Tensor:
    check_levels(features, len(features[0]))
    return _gather(list(features), pixels, *size)


pyramid_gather.__doc__ = reference.pyramid_gather.__doc__


@torch.library.custom_op("mona::pyramid_gather", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _gather(features: list[Tensor], pixels: Tensor, height: int, width: int) -> Tensor:
    out = _rows_like(features, pixels, height, width)
    if len(pixels) and int(pixels.max()) >= len(features[0]) * height * width:
        raise ValueError(f"expected pixels below {len(features[0]) * height * width}, found {int(pixels.max())}")
    _training.pyramid_gather(as_buffers(features), pixels.contiguous(), height, width, out, torch.get_num_threads())
    return out


@_gather.register_fake  # type: ignore[untyped-decorator]
def _rows_like(features: list[Tensor], pixels: Tensor, height: int, width: int) -> Tensor:
    channels = sum(level.shape[1] for level in features)
    return features[0].new_empty((len(pixels), channels), dtype=added_up_in(features[0].dtype))


@on_cuda(_gather)
def _(features: list[Tensor], pixels: Tensor, height: int, width: int) -> Tensor:
    from mona_kernels.ops.pyramid_gather import triton as kernels

    return kernels.pyramid_gather(features, pixels, (height, width))


@torch.library.custom_op("mona::pyramid_gather_backward", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _scatter(grad: Tensor, features: list[Tensor], pixels: Tensor, height: int, width: int) -> list[Tensor]:
    out = [torch.zeros_like(level, dtype=grad.dtype) for level in features]
    _training.pyramid_scatter(out, pixels.contiguous(), height, width, grad.contiguous(), torch.get_num_threads())
    return [g.to(level.dtype) for g, level in zip(out, features, strict=True)]


@_scatter.register_fake  # type: ignore[untyped-decorator]
def _(grad: Tensor, features: list[Tensor], pixels: Tensor, height: int, width: int) -> list[Tensor]:
    return [torch.empty_like(level) for level in features]


@on_cuda(_scatter)
def _(grad: Tensor, features: list[Tensor], pixels: Tensor, height: int, width: int) -> list[Tensor]:
    from mona_kernels.ops.pyramid_gather import triton as kernels

    return kernels.pyramid_gather_backward(grad, features, pixels, (height, width))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, pixels, *ctx.size = inputs
    ctx.save_for_backward(pixels, *features)  # only the shape and layout of the features are used


def _gradient(ctx: Any, grad: Tensor) -> tuple[list[Tensor], None, None, None]:
    pixels, *features = ctx.saved_tensors
    return _scatter(grad, features, pixels, *ctx.size), None, None, None


_gather.register_autograd(_gradient, setup_context=_save)
