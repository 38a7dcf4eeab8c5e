"""Quarter turns: the answer on a turned slice is compared with the turned answer, and both sides learn half."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, following, stage_of, step_of, weights_at, with_gradient
from torch import Tensor, nn

from mona_train.augment import Fitted
from mona_train.methods.dct import QuarterTurns
from mona_train.methods.registry import stages_of
from mona_train.networks.unet import UNetOutput


class Pixelwise(nn.Module):
    """Looks at every pixel alone, so turning a slice turns its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(1, CLASSES, 1)

    def forward(self, images: Tensor) -> UNetOutput:
        return UNetOutput(5 * self.head(images), [])


def turned_by(upright: Tensor, turned: Tensor) -> set[int]:
    return {k for k in range(4) if torch.equal(upright.rot90(k, (2, 3)), turned)}


def test_losses_are_those_of_the_method() -> None:
    stage = stage_of(QuarterTurns)
    step = step_of(stage, index=150, size=32, labelled=2, unlabelled=3)
    student = calls_of(step.student["unet"])
    loss = stage.losses(step)["consistency"]
    (images, out), (turned_images, turned_out) = student
    assert len(images) == 5 and len(turned_images) == 3
    (quarters,) = turned_by(images[2:], turned_images)
    assert quarters != 0  # else the rest would prove little: choose another index
    expected = F.mse_loss(out.logits[2:].softmax(1).rot90(quarters, (2, 3)), turned_out.logits.softmax(1))
    torch.testing.assert_close(loss, expected)  # both terms have this value...
    both = out.logits, turned_out.logits
    for mine, plain in zip(
        torch.autograd.grad(loss, both, retain_graph=True), torch.autograd.grad(expected, both), strict=True
    ):
        torch.testing.assert_close(mine, plain / 2)  # ...and each has the gradient of one side
    assert not bool(torch.autograd.grad(stage.losses(step)["consistency"], student[2][1].logits)[0][:2].any())


def test_all_turns_occur_and_come_from_the_steps_generator() -> None:
    stage = stage_of(QuarterTurns)
    step = step_of(stage, index=100, size=16)
    step.student["unet"] = Pixelwise()
    student = calls_of(step.student["unet"])
    for n in range(24):
        stage.losses(following(step, n))
    quarters = [turned_by(student[2 * n][0][3:], student[2 * n + 1][0]) for n in range(24)]
    assert all(len(found) == 1 for found in quarters) and set.union(*quarters) == {0, 1, 2, 3}
    torch.manual_seed(99)
    stage.losses(following(step, 5))
    assert torch.equal(student[-1][0], student[11][0])


def test_the_loss_is_0_for_a_network_that_turns_with_the_slice_and_not_for_a_unet() -> None:
    stage = stage_of(QuarterTurns)
    step = step_of(stage, index=100, size=16)
    for n in range(6):
        assert stage.losses(following(step, n))["consistency"].item() > 1e-8
    step.student["unet"] = Pixelwise()
    for n in range(6):
        assert stage.losses(following(step, n))["consistency"].item() < 1e-12


def test_slices_need_not_be_square() -> None:
    stage = stage_of(QuarterTurns)
    step = replace(step_of(stage, index=100, size=48), window=(32, 16))
    student = calls_of(step.student["unet"])
    for n in range(4):
        assert bool(stage.losses(following(step, n))["consistency"].isfinite())
    assert {images.shape[2:] for images, _ in student} == {(32, 16), (16, 32)}


def test_the_second_pass_does_not_update_running_statistics_and_has_the_same_appearance() -> None:
    after = []
    for weight in (0.0, 0.1):  # without weight there is no second pass
        stage = stage_of(QuarterTurns, consistency_weight=weight)
        step = replace(step_of(stage, index=150, size=32), augment=Fitted())
        student = calls_of(step.student["unet"])
        stage.losses(step)
        after.append({k: v for k, v in step.student["unet"].state_dict().items() if "running" in k})
    assert len(student) == 2 and len(turned_by(student[0][0][3:], student[1][0])) == 1
    assert all(torch.equal(after[0][key], after[1][key]) for key in after[0])
    assert step.student["unet"].encoder[0][1].momentum == 0.1


def test_only_the_unet_learns_and_the_weight_rises() -> None:
    assert stages_of("dct") == (QuarterTurns,) and QuarterTurns.averaged == ()
    stage = stage_of(QuarterTurns, consistency_weight=0.4)
    step = step_of(stage, index=150, size=32)
    stage.losses(step)["consistency"].backward()
    assert with_gradient(step.student) == {"unet"}
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        assert weights_at(stage, index)["consistency"] == pytest.approx(0.4 * math.exp(-5 * (1 - share) ** 2))
        assert weights_at(stage_of(QuarterTurns), index)["consistency"] == pytest.approx(
            0.1 * math.exp(-5 * (1 - share) ** 2)
        )
    assert list(stage.losses(step_of(stage, index=150, unlabelled=0, size=32))) == ["supervised"]
