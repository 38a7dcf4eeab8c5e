"""The teacher: an exponential moving average (EMA) of the student's weights."""

from __future__ import annotations

import copy

import torch
from torch import nn


def teacher_of(student: nn.ModuleDict, averaged: tuple[str, ...]) -> nn.ModuleDict:
    """A copy of the student's networks (including heads: difference 14) without gradients."""
    teacher = nn.ModuleDict({name: copy.deepcopy(student[name]) for name in averaged})
    return teacher.requires_grad_(False)


def teaching_mode(teacher: nn.ModuleDict) -> None:
    """Batch statistics, but no dropout (decision 4): pseudo-labels should not be noisy."""
    teacher.train()
    for module in teacher.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()


@torch.no_grad()  # type: ignore[untyped-decorator]
def average_(teacher: nn.ModuleDict, student: nn.ModuleDict, decay: float) -> None:
    """teacher <- decay teacher + (1 - decay) student, parameters only: a teacher keeps its own statistics."""
    mine = [p for network in teacher.values() for p in network.parameters()]
    theirs = [p for name in teacher for p in student[name].parameters()]
    if mine:
        torch._foreach_lerp_(mine, theirs, 1 - decay)
