"""Validation on whole volumes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.small_runs import TASK, slices_of
from helpers.trainers import case_of
from torch import Tensor, nn

from mona_train.engine.validate import summary, validate
from mona_train.networks.unet import UNetOutput


class Oracle(nn.Module):
    """Reads the class off the brightness that `slices_of` painted it with."""

    def forward(self, images: Tensor) -> UNetOutput:
        labels = (images * 65_535 / 18_666).floor().long().clamp(0, 3)[:, 0]
        return UNetOutput(F.one_hot(labels, 4).permute(0, 3, 1, 2).float(), [])


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 1, 2), (1, 0, 2)])
def test_a_network_that_knows_scores_1(order: tuple[int, int, int]) -> None:
    found = summary(validate(Oracle(), [case_of(n, order) for n in range(3)], TASK, torch.device("cpu")), TASK)
    assert found["dsc"] == 1 and found["asd"] == 0 and found["miss_rate"] == 0
    assert {name: entry["dsc"] for name, entry in found["classes"].items()} == {"RV": 1, "Myo": 1, "LV": 1}


def test_a_network_that_is_wrong_about_one_class_loses_that_class() -> None:
    class Blind(Oracle):
        def forward(self, images: Tensor) -> UNetOutput:
            logits = super().forward(images).logits
            logits[:, 2] = -1
            return UNetOutput(logits, [])

    network = Blind().train()
    found = summary(validate(network, [case_of(0)], TASK, torch.device("cpu")), TASK)
    assert not network.training
    assert {name: entry["dsc"] for name, entry in found["classes"].items()} == {"RV": 1, "Myo": 0, "LV": 1}


def test_a_network_is_given_the_window_and_what_is_outside_is_background() -> None:
    task, sizes = replace(TASK, window=(16, 32)), []

    class Watched(Oracle):
        def forward(self, images: Tensor) -> UNetOutput:
            sizes.append(tuple(images.shape[1:]))
            return super().forward(images)

    (scored,) = validate(Watched(), [case_of(0)], task, torch.device("cpu"))
    _, labels = slices_of(0)
    labels[0, 0, :2] = 0, 3
    assert {*sizes} == {(1, 16, 32)}
    for number, score in scored.scores.items():
        inside, whole = (labels[:, 8:24] == number).sum(), (labels == number).sum()
        assert score.dsc == pytest.approx(2 * inside / (inside + whole))
