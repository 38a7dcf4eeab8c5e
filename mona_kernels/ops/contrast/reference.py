"""InfoNCE of method 4.2.7 in three modes that differ in how the sum over N negatives is computed.

`exact` is the specification: every query has its own keys.  `shared` draws one set of keys per class, with the same
expected value.  `expected` replaces the sum by N times the mean of e^(s/t) over the key distribution: no draws, and in
expectation never below the others (Jensen).
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
    """The loss: mean over queries, then over the active classes; 0, with gradient 0, if none is active.

    queries (C, Q, D) and positives (C, D) have any length; keys are rows of the rings (V, R, D), of length 1 in slots
    that are used; only the queries get gradients.
    shared:    drawn (C, 1, N), flat slots of V R, one set for all queries of a class.
    exact:     drawn (C, Q, N).
    expected:  the first `filled` (V) slots of each ring by the law (C, V); count = N.
    Draws below 0 belong to a class without any keys, which is not active.
    """
    check_mode(mode, drawn, law, filled, count)
    dtype = torch.promote_types(queries.dtype, torch.float32)
    q = F.normalize(queries.to(dtype), dim=-1)
    positive, keys = F.normalize(positives.detach().to(dtype), dim=-1), rings.detach().to(dtype).flatten(0, 1)  # VR D
    attraction = (q @ positive[:, :, None])[..., 0] / temperature  # C Q
    if mode == "shared" and drawn is not None:
        repulsion = (q @ keys[drawn[:, 0].clamp_min(0)].transpose(1, 2) / temperature).logsumexp(-1)
    else:
        scores = q @ keys.T / temperature  # C Q VR: each product is computed once, however often its key was drawn
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
        needed = "shared and exact need drawn; expected needs law, filled and count"
        raise ValueError(f"unknown mode {mode!r}, or its arguments are missing ({needed})")


def key_weights(law: Tensor, filled: Tensor, rings: Tensor) -> Tensor:
    """The weight of each slot (C, V R): law[c, v] / filled[v] for those in use, 0 for the others."""
    used = torch.arange(rings.shape[1], device=rings.device) < filled[:, None]  # V R
    weight = (law[:, :, None] / filled.clamp_min(1)[:, None] * used).flatten(1)
    # A class without any keys is not active; uniform weights keep its rows and their gradients finite.
    return torch.where(weight.any(1, keepdim=True), weight, torch.ones_like(weight))
