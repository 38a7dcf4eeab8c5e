"""The teacher: an exponential moving average (EMA) of the student's weights.

As published it only teaches: it keeps its own batch statistics, and uses those of the batch.  If the run's answer is the
average (`Config.average`), its statistics are averaged too, and it always computes as it will when exported.
"""

from __future__ import annotations

import copy

import torch
from torch import nn


def teacher_of(student: nn.ModuleDict, averaged: tuple[str, ...]) -> nn.ModuleDict:
    """A copy of the student's networks (including heads: difference 14) without gradients."""
    teacher = nn.ModuleDict({name: copy.deepcopy(student[name]) for name in averaged})
    return teacher.requires_grad_(False)


def teaching_mode(teacher: nn.ModuleDict, *, answers: bool = False) -> None:
    """No dropout, since pseudo-labels should not be noisy; batch statistics (decision 4), unless it also answers."""
    teacher.train(not answers)
    for module in teacher.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()


@torch.no_grad()  # type: ignore[untyped-decorator]
def average_(teacher: nn.ModuleDict, student: nn.ModuleDict, decay: float, *, statistics: bool = False) -> None:
    """teacher <- decay teacher + (1 - decay) student: parameters and, if asked, the running statistics."""
    mine = [p for network in teacher.values() for p in network.parameters()]
    theirs = [p for name in teacher for p in student[name].parameters()]
    if statistics:
        mine += [b for network in teacher.values() for b in network.buffers() if b.is_floating_point()]
        theirs += [b for name in teacher for b in student[name].buffers() if b.is_floating_point()]
    if mine:
        torch._foreach_lerp_(mine, theirs, 1 - decay)


def warmed_up(decay: float, index: int) -> float:
    """The decay at a stage's first steps: less, so that the average does not stay at the weights it started from."""
    return min(decay, (1 + index) / (10 + index))
