"""InfoNCE of method 4.2.7 in three modes that differ in how the sum over N negatives is taken.

`exact` is the specification: keys of its own for every query.  `shared` draws one set per class, the same in
expectation.  `expected` puts N times the mean of e^(s/t) under the key law in place of the sum: no draws, and never
below the others in expectation (Jensen).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

Mode = Literal["shared", "exact", "expected"]
MODES: tuple[Mode, ...] = get_args(Mode)


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
    """The loss: mean over queries, then over the active classes; 0, with gradient 0, where none is active.

    queries (C, Q, D) and positives (C, D) of any length; keys are rows of the rings (V, R, D), of length 1 where they
    are used; gradients go to the queries alone.
    shared:    drawn (C, 1, N), flat slots of V R, one set for all queries of a class.
    exact:     drawn (C, Q, N).
    expected:  the first `filled` (V) slots of each ring by the law (C, V); count = N.
    Draws below 0 are those of a class without any key, which is not active.
    """
    check_mode(mode, drawn, law, filled, count)
    dtype = torch.promote_types(queries.dtype, torch.float32)
    q = F.normalize(queries.to(dtype), dim=-1)
    positive, keys = F.normalize(positives.detach().to(dtype), dim=-1), rings.detach().to(dtype).flatten(0, 1)  # VR D
    attraction = (q @ positive[:, :, None])[..., 0] / temperature  # C Q
    if mode == "shared" and drawn is not None:
        repulsion = (q @ keys[drawn[:, 0].clamp_min(0)].transpose(1, 2) / temperature).logsumexp(-1)
    else:
        scores = q @ keys.T / temperature  # C Q VR: each product once, however often its key was drawn
        if drawn is not None:
            repulsion = scores.gather(2, drawn.clamp_min(0)).logsumexp(-1)
        else:
            assert law is not None and filled is not None
            weight = key_weights(law.detach().to(dtype), filled, rings)[:, None]
            repulsion = (scores + weight.log()).logsumexp(-1) + math.log(count)
    losses = (torch.logaddexp(attraction, repulsion) - attraction).mean(1)
    return losses.masked_fill(~active, 0).sum() / active.sum().clamp_min(1)


def check_mode(mode: Mode, drawn: Tensor | None, law: Tensor | None, filled: Tensor | None, count: int) -> None:
    complete = drawn is not None if mode != "expected" else law is not None and filled is not None and count > 0
    if mode not in MODES or not complete:
        needed = "shared and exact: drawn; expected: law, filled, count"
        raise ValueError(f"mode {mode!r} is unknown or lacks its draws ({needed})")


def key_weights(law: Tensor, filled: Tensor, rings: Tensor) -> Tensor:
    """How much each slot counts (C, V R): law[c, v] / filled[v] for those in use, 0 for the others."""
    used = torch.arange(rings.shape[1], device=rings.device) < filled[:, None]  # V R
    weight = (law[:, :, None] / filled.clamp_min(1)[:, None] * used).flatten(1)
    # A class without any key is not active; uniform weights keep its rows, and their gradients, finite.
    return torch.where(weight.any(1, keepdim=True), weight, torch.ones_like(weight))
