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
from mona_infer.segmenter import Segmenter
from mona_infer.task import Task
from mona_infer.viewing.pictures import Picture, overlay
from mona_kernels.native import Labels
from mona_train.data.case import Case
from mona_train.engine.torch_engine import TorchEngine


@dataclass(frozen=True)
class Scored:
    case: Case
    scores: dict[int, Score]
    diagonal: float  # mm: what a miss is charged
    paper: dict[int, Score] | None  # the published definition, if it was asked for
    tiles: list[tuple[str, Picture]]  # image, prediction, reference: the slice through the middle of the organ


def validate(
    network: nn.Module,
    cases: Iterable[Case],
    task: Task,
    device: torch.device,
    look: nn.Module | None = None,
    *,
    paper: bool = False,
) -> list[Scored]:
    """Scores of every case under the `sound` definition; the network is left in evaluation mode.

    `look` is the first look's network, if the Task has one.  With `paper`, also under the published definition.
    """
    first_look = TorchEngine(look, device) if look is not None else None
    segmenter, found = Segmenter(task, engine=TorchEngine(network, device), first_look=first_look), []
    for case in cases:
        assert case.label is not None, f"{case.name} has no label to be scored against"
        label = case.label()
        segmentation = segmenter.segment(case.image())
        stack, mask = segmentation.stack, segmentation.mask.voxels
        ids = [c.id for c in task.classes[1:]]
        scores = score_case(mask, label.voxels, label.steps, ids)
        published = score_case(mask, label.voxels, label.steps, ids, definition="paper") if paper else None
        diagonal = math.hypot(*(n * s for n, s in zip(label.shape, label.spacing, strict=True)))
        tiles = _tiles(case.name, stack, mask, label.voxels, task)
        found.append(Scored(case, scores, diagonal, published, tiles))
    return found


def summary(scored: list[Scored], task: Task) -> dict[str, Any]:
    """Means over cases with intervals, classes by name."""
    report = summarise([s.scores for s in scored], [s.diagonal for s in scored], [s.case.patient for s in scored])
    names = {str(c.id): c.name for c in task.classes}
    return {**report, "classes": {names[label]: entry for label, entry in report["classes"].items()}}


def by_case(scored: list[Scored], task: Task) -> list[dict[str, Any]]:
    """DSC and ASD of every class in every case, under both definitions; None where a definition gives no number."""
    names = {c.id: c.name for c in task.classes}
    cases = []
    for s in scored:
        entry: dict[str, Any] = {"case": s.case.name, "patient": s.case.patient}
        for label, score in s.scores.items():
            entry[names[label]] = {"dsc": score.dsc, "asd": score.asd}
            if s.paper is not None:
                entry[names[label]] |= {"legacy_dsc": s.paper[label].dsc, "legacy_asd": s.paper[label].asd}
        cases.append(entry)
    return cases


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
