"""Whole volumes through a network in training, with the code that `mona segment` and `mona evaluate` use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mona_infer.evaluation.metrics import Score, score_case, summarise
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import Task
from mona_infer.viewing.pictures import Picture, overlay
from mona_infer.volume import Volume
from mona_kernels.native import Labels
from mona_train.data.case import Case
from mona_train.engine.full_precision import full_precision

SLICES = 16  # at a time through the network


@dataclass(frozen=True)
class Scored:
    case: Case
    scores: dict[int, Score]
    diagonal: float  # mm: what a miss is charged
    tiles: list[tuple[str, Picture]]  # image, prediction, reference: the slice through the middle of the organ


@torch.no_grad()  # type: ignore[untyped-decorator]
def predict(network: nn.Module, volume: Volume, task: Task, device: torch.device) -> tuple[SliceStack, Labels]:
    """The network's mask on the scan's own grid, computed in 32 bit as an exported model computes it."""
    network.eval()
    stack = SliceStack(volume, task)
    mask = stack.empty_mask()
    with full_precision(device):
        for start, slices in stack.batches(SLICES):
            logits = network(torch.from_numpy(slices)[:, None].to(device)).logits
            stack.restore(mask, start, logits.float().cpu().contiguous().numpy())
    return stack, mask


def validate(network: nn.Module, cases: Iterable[Case], task: Task, device: torch.device) -> list[Scored]:
    """Scores of every case under the `sound` definition; the network is left in evaluation mode."""
    found = []
    for case in cases:
        assert case.label is not None, f"{case.name} has no label to be scored against"
        image, label = case.image(), case.label()
        stack, mask = predict(network, image, task, device)
        scores = score_case(mask, label.voxels, label.steps, [c.id for c in task.classes[1:]])
        diagonal = math.hypot(*(n * s for n, s in zip(label.shape, label.spacing, strict=True)))
        found.append(Scored(case, scores, diagonal, _tiles(case.name, stack, mask, label.voxels, task)))
    return found


def summary(scored: list[Scored], task: Task) -> dict[str, Any]:
    """Means over cases with intervals, classes by name."""
    report = summarise([s.scores for s in scored], [s.diagonal for s in scored], [s.case.patient for s in scored])
    names = {str(c.id): c.name for c in task.classes}
    return {**report, "classes": {names[label]: entry for label, entry in report["classes"].items()}}


def _tiles(name: str, stack: SliceStack, mask: Labels, reference: Labels, task: Task) -> list[tuple[str, Picture]]:
    view = stack.slicing.view
    area = (view(reference) > 0).sum(axis=(1, 2))
    k = int(np.average(np.arange(len(area)), weights=area)) if area.any() else len(area) // 2
    values = stack.volume.intensities(view(stack.volume.voxels)[k])
    plane = (values - stack.low) / max(stack.high - stack.low, 1e-9)
    return [
        (f"{name}, slice {k}", overlay(plane, None, task)),
        ("prediction", overlay(plane, view(mask)[k], task)),
        ("reference", overlay(plane, view(reference)[k], task)),
    ]
