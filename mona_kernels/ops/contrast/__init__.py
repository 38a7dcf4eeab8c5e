"""The contrast of hard queries with their class mean and with keys of other classes (method 4.2.7 and 9.4).

The op returns the loss and, from the same scores, its gradient, which is all that is kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_kernels import _training
from mona_kernels.ops.contrast import reference
from mona_kernels.ops.contrast.reference import MODES, Mode, check_mode
from mona_kernels.ops.cuda import on_cuda
from mona_kernels.ops.levels import added_up_in

__all__ = ["MODES", "Mode", "contrast"]


def contrast(
    queries: Tensor,
    active: Tensor,
    positives: Tensor,
    rings: Tensor,
    *,
    temperature: float,
    mode: Mode,
    drawn: Tensor | None = None,
    law: Tensor | None = None,
    filled: Tensor | None = None,
    count: int = 0,
) -> Tensor:
    check_mode(mode, drawn, law, filled, count)
    _check_shapes(queries, active, positives, rings, mode, drawn, law, filled)
    loss: Tensor = _contrast(queries, active, positives, rings, temperature, mode, drawn, law, filled, count)[0]
    return loss


contrast.__doc__ = reference.contrast.__doc__


def _check_shapes(
    queries: Tensor,
    active: Tensor,
    positives: Tensor,
    rings: Tensor,
    mode: Mode,
    drawn: Tensor | None,
    law: Tensor | None,
    filled: Tensor | None,
) -> None:
    """Kernels read by these sizes: a set of draws for each query that holds one for all would be read past its end."""
    (classes, each, dim), count = queries.shape, len(rings)
    expected = {"active": (classes,), "positives": (classes, dim), "rings": (count, *rings.shape[1:2], dim)}
    given = {"active": active, "positives": positives, "rings": rings}
    if mode == "expected":
        expected |= {"law": (classes, count), "filled": (count,)}
        given |= {"law": law, "filled": filled}
    elif drawn is not None:
        expected["drawn"] = (classes, 1 if mode == "shared" else each, *drawn.shape[2:3])
        given["drawn"] = drawn
    for name, shape in expected.items():
        tensor = given[name]
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"expected {name} {shape} for queries {tuple(queries.shape)}, found {tuple(tensor.shape)}")


@torch.library.custom_op("mona::contrast", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _contrast(
    queries: Tensor,
    active: Tensor,
    positives: Tensor,
    rings: Tensor,
    temperature: float,
    mode: str,
    drawn: Tensor | None,
    law: Tensor | None,
    filled: Tensor | None,
    count: int,
) -> tuple[Tensor, Tensor]:
    dtype, threads = added_up_in(queries.dtype), torch.get_num_threads()
    q = queries.detach().to(dtype).contiguous()
    means = F.normalize(positives.detach().to(dtype), dim=-1).contiguous()
    flat = rings.detach().flatten(0, 1)
    which = active.nonzero()[:, 0].tolist()
    share = 1 / (q.shape[1] * max(len(which), 1))
    gradient = torch.zeros_like(q) if len(which) < len(q) else torch.empty_like(q)
    parts = q.new_empty((q.shape[1], 3))
    if drawn is not None:  # keys drawn from NaN weights must not be read; the loss is NaN anyway
        drawn = drawn.clamp(0, len(flat) - 1)
    total = 0.0
    for c in which:  # one class at a time: only its scores exist, and they stay in the cache
        keys = (flat if mode != "shared" or drawn is None else flat.index_select(0, drawn[c, 0])).to(dtype)
        scores = q[c] @ keys.T
        own = drawn[c].contiguous() if mode == "exact" and drawn is not None else None
        weight = count * reference.key_weights(law[c : c + 1].to(dtype), filled, rings)[0] if law is not None else None
        total += _training.contrast_weights(q[c], means[c], scores, parts, own, weight, temperature, share, threads)
        torch.mm(scores, keys, out=gradient[c])
        _training.contrast_gradient(q[c], means[c], gradient[c], parts, threads)
    return q.new_tensor(total * share), gradient.to(queries.dtype)


@_contrast.register_fake  # type: ignore[untyped-decorator]
def _(queries: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    loss = queries.new_empty((), dtype=added_up_in(queries.dtype))
    return loss, queries.new_empty(queries.shape)


@on_cuda(_contrast)
def _(*tensors_and_numbers: Any) -> tuple[Tensor, Tensor]:
    from mona_kernels.ops.contrast import triton as kernels

    *tensors, temperature, mode, drawn, law, filled, count = tensors_and_numbers
    given = {"temperature": temperature, "mode": mode, "drawn": drawn, "law": law, "filled": filled, "count": count}
    loss, saved = kernels.contrast(*tensors, **given)
    return loss, kernels.contrast_backward(torch.ones_like(loss), saved, *tensors, **given).contiguous()


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return (grad * gradient, *[None] * 9)


_contrast.register_autograd(_gradient, setup_context=_save)
