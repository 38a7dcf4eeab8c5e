"""The run's augmentation reaches its stages, with the slices that a mixture needs to know."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.small_runs import TASK, small_cache, small_config, small_split
from lightning_fabric import Fabric

from mona_infer.errors import InputError
from mona_train.augment import PUBLISHED, Augmentation, Fitted
from mona_train.engine import trainer as module
from mona_train.engine.trainer import Trainer
from mona_train.methods.base import Step


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, PUBLISHED),
        ({"augmentation": "fitted"}, Fitted(mirrors=False)),
        ({"augmentation": "fitted", "mirrors": True}, Fitted(mirrors=True)),
    ],
)
def test_a_step_has_the_augmentation_of_its_run(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: Augmentation
) -> None:
    steps: list[Step] = []

    def step_of(**given: Any) -> Step:
        steps.append(Step(**given))
        return steps[-1]

    monkeypatch.setattr(module, "Step", step_of)
    fabric = Fabric(devices=1, accelerator="cpu")
    run = Trainer(small_config("mona", **settings), small_cache(), small_split(), TASK, fabric)
    losses = run.step()
    assert steps[0].augment == expected and all(bool(torch.isfinite(loss)) for loss in losses.values())
    rows = steps[0].labelled.rows
    assert rows is not None and len(rows) == len(steps[0].labelled.images)


def test_an_unknown_augmentation_is_refused() -> None:
    with pytest.raises(InputError, match="published, fitted"):
        small_config("mona", augmentation="fited")
