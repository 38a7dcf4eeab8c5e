"""Sums of the upsampled feature pyramid over the pixels of each class, without upsampling it (method 9.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.class_means import reference
from mona_kernels.ops.class_means.reference import interpolation
from mona_kernels.ops.cuda import on_cuda
from mona_kernels.ops.levels import added_up_in, as_buffers, check_levels

__all__ = ["class_sums", "interpolation"]


def class_sums(features: Sequence[Tensor], known: Tensor, classes: int) -> Tensor:
    check_levels(features, len(known))
    return _class_sums(list(features), known, classes)


class_sums.__doc__ = reference.class_sums.__doc__


@torch.library.custom_op("mona::class_sums", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _class_sums(features: list[Tensor], known: Tensor, classes: int) -> Tensor:
    out = _sums_like(features, known, classes)
    _training.class_sums(as_buffers(features), known.short().contiguous(), out, torch.get_num_threads())
    return out


@_class_sums.register_fake  # type: ignore[untyped-decorator]
def _sums_like(features: list[Tensor], known: Tensor, classes: int) -> Tensor:
    channels = sum(level.shape[1] for level in features)
    return features[0].new_empty((classes, channels), dtype=added_up_in(features[0].dtype))


@on_cuda(_class_sums)
def _(features: list[Tensor], known: Tensor, classes: int) -> Tensor:
    from mona_kernels.ops.class_means import triton as kernels

    return kernels.class_sums(features, known, classes)


@torch.library.custom_op("mona::class_sums_backward", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _backward(grad: Tensor, features: list[Tensor], known: Tensor, classes: int) -> list[Tensor]:
    out = [torch.empty_like(level, dtype=grad.dtype) for level in features]
    _training.class_sums_backward(out, known.short().contiguous(), grad.contiguous(), torch.get_num_threads())
    return [g.to(level.dtype) for g, level in zip(out, features, strict=True)]


@_backward.register_fake  # type: ignore[untyped-decorator]
def _(grad: Tensor, features: list[Tensor], known: Tensor, classes: int) -> list[Tensor]:
    return [torch.empty_like(level) for level in features]


@on_cuda(_backward)
def _(grad: Tensor, features: list[Tensor], known: Tensor, classes: int) -> list[Tensor]:
    from mona_kernels.ops.class_means import triton as kernels

    return kernels.class_sums_backward(grad, features, known, classes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, known, ctx.classes = inputs
    ctx.save_for_backward(known, *features)  # only the shape and layout of the features are used


def _gradient(ctx: Any, grad: Tensor) -> tuple[list[Tensor], None, None]:
    known, *features = ctx.saved_tensors
    return _backward(grad, features, known, ctx.classes), None, None


_class_sums.register_autograd(_gradient, setup_context=_save)
