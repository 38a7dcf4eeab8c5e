"""Symmetric KL between a warped prediction and the prediction on the warped image (method 4.4).

The op returns the loss and, from the same pass, its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.cuda import on_cuda
from mona_kernels.ops.equivariance import reference
from mona_kernels.ops.levels import added_up_in

__all__ = ["equivariance"]


def equivariance(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> Tensor:
    batch, _, *size = logits.shape
    expected = logits.shape, (batch, *size), (batch, *size, 2)
    found = [tuple(t.shape) for t in (probabilities, mask, points)]
    if found != [tuple(shape) for shape in expected]:
        raise ValueError(f"expected probabilities, mask and points {expected}, to match the logits, found {found}")
    loss: Tensor = _equivariance(probabilities, mask, points, logits)[0]
    return loss


equivariance.__doc__ = reference.equivariance.__doc__


@torch.library.custom_op("mona::equivariance", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _equivariance(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    dtype = added_up_in(logits.dtype)
    p, m, t, f = (x.detach().to(dtype) for x in (probabilities, mask, points, logits))
    gradient = torch.empty_like(f)
    weights, values = (torch.empty(len(f), dtype=torch.float64) for _ in range(2))
    maps = p, m[:, None], t.permute(0, 3, 1, 2), f
    _training.equivariance(*maps, gradient, weights, values, torch.get_num_threads())
    weights += 1e-7
    gradient *= (1 / (len(f) * weights)).to(dtype)[:, None, None, None]
    return (values / weights).mean().to(dtype), gradient.to(logits.dtype)


@_equivariance.register_fake  # type: ignore[untyped-decorator]
def _(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.new_empty((), dtype=added_up_in(logits.dtype)), torch.empty_like(logits)


@on_cuda(_equivariance)
def _(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    from mona_kernels.ops.equivariance import triton as kernels

    given = probabilities, mask, points, logits
    loss, weight = kernels.equivariance(*given)
    return loss, kernels.equivariance_backward(torch.ones_like(loss), weight, *given)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, None, Tensor]:
    (gradient,) = ctx.saved_tensors
    return None, None, None, grad * gradient


_equivariance.register_autograd(_gradient, setup_context=_save)
