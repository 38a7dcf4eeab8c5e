"""Optimisers, and the learning rate over a stage."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mona_train.config.schema import Optimiser


def optimiser(settings: Optimiser, networks: list[nn.Module], *, nesterov: bool) -> torch.optim.Optimizer:
    """SGD, Adam or AdamW, fused; weight decay on every parameter, as published."""
    parameters = [p for network in networks for p in network.parameters() if p.requires_grad]
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": True}
    if settings.kind != "sgd":
        adam = torch.optim.AdamW if settings.kind == "adamw" else torch.optim.Adam
        return adam(parameters, betas=(settings.momentum, settings.beta2), **common)
    nesterov = nesterov and settings.momentum > 0  # torch does not allow Nesterov without momentum
    sgd = torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=nesterov, **common)
    if settings.momentum:
        # Fused SGD needs a momentum for all parameters or none, and heads get their first gradient when a bank is full.
        # Starting from zeros is the same as starting without momentum: 0 m + gradient.
        for p in parameters:
            sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return sgd


def rate(settings: Optimiser, index: int, steps: int) -> float:
    """lr (1 - t/T)^power, after a linear warm-up over a share of the time; t starts after the share that is held."""
    warm, held = settings.warmup * steps, settings.hold * steps
    start = min(1.0, (index + 1) / warm) if warm >= 1 else 1.0
    left = 1 - (index - held) / (steps - held) if index > held else 1.0
    return float(settings.lr * start * left**settings.power)
