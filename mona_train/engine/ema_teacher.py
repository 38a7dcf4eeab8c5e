"""The teacher: an exponential moving average (EMA) of the student's weights.

It teaches with the statistics of the batch (decision 4): with averaged ones its pseudo-labels are worse than none
(docs/results.md).  It keeps running statistics for when it answers: those of the batches it saw or, if the run's answer
is the average (`Config.average`), those that `batch_statistics` counts before it is measured.
"""

from __future__ import annotations

import copy

import torch
from torch import nn


def teacher_of(student: nn.ModuleDict, averaged: tuple[str, ...], *, answers: bool = False) -> nn.ModuleDict:
    """A copy of the student's networks (including heads: difference 14) without gradients."""
    teacher = nn.ModuleDict({name: copy.deepcopy(student[name]) for name in averaged})
    for module in teacher.modules() if answers else ():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0  # its running statistics are counted before it answers, not updated by what it sees
    return teacher.requires_grad_(False)


def teaching_mode(teacher: nn.ModuleDict) -> None:
    """Batch statistics, but no dropout (decision 4): pseudo-labels should not be noisy."""
    teacher.train()
    for module in teacher.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()


@torch.no_grad()  # type: ignore[untyped-decorator]
def average_(teacher: nn.ModuleDict, student: nn.ModuleDict, decay: float) -> None:
    """teacher <- decay teacher + (1 - decay) student, parameters only."""
    mine = [p for network in teacher.values() for p in network.parameters()]
    theirs = [p for name in teacher for p in student[name].parameters()]
    if mine:
        torch._foreach_lerp_(mine, theirs, 1 - decay)


def warmed_up(decay: float, index: int) -> float:
    """The decay at a stage's first steps: less, so that the average does not stay at the weights it started from."""
    return min(decay, (1 + index) / (10 + index))
