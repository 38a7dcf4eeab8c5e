"""`Projector`: a head whose hidden layer and output differ in width; those of `heads` have one width."""

from __future__ import annotations

from torch import nn


class Projector(nn.Sequential):  # type: ignore[misc]
    """Rows (B, inputs) to (B, dim): linear, batch norm if asked for, ReLU, linear."""

    def __init__(self, inputs: int, hidden: int, dim: int, *, batch_norm: bool = False) -> None:
        norm = (nn.BatchNorm1d(hidden),) if batch_norm else ()
        super().__init__(nn.Linear(inputs, hidden), *norm, nn.ReLU(), nn.Linear(hidden, dim))
