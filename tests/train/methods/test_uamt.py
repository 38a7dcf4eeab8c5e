"""UAMT: Mean Teacher's loss where the teacher's mean answer, with noise and dropout, has little entropy."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import calls_of, following, stage_of, step_of, weights_at, with_gradient, without_dropout

from mona_infer.errors import InputError
from mona_train.methods.base import Step
from mona_train.methods.registry import stages_of
from mona_train.methods.uamt import UncertaintyAware, masked, threshold


def sharpened(step: Step, factor: float) -> Step:
    """Networks with larger logits: a fresh one is uncertain everywhere."""
    for networks in (step.student, step.teacher):
        networks["unet"].head.weight.data.mul_(factor)
    return step


def test_losses_are_those_of_the_method() -> None:
    stage = stage_of(UncertaintyAware)
    step = sharpened(step_of(stage, index=150, size=32, labelled=2), 15)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    loss = stage.losses(step)["consistency"]
    assert len(student) == 1 and len(teacher) == 9 and all(len(images) == 3 for images, _ in teacher)
    p, q = student[0][1].logits[2:].softmax(1), teacher[0][1].logits.softmax(1)
    mean = torch.stack([out.logits.softmax(1) for _, out in teacher[1:]]).mean(0)
    uncertainty = -(mean * torch.log(mean + 1e-6)).sum(1, keepdim=True)
    mask = (uncertainty < (0.75 + 0.25 * math.exp(-5 * 0.5**2)) * math.log(2)).float()
    assert 0.1 < float(mask.mean()) < 0.9
    torch.testing.assert_close(loss, (mask * (p - q) ** 2).sum() / (2 * mask.sum() + 1e-16))
    (slope,) = torch.autograd.grad(loss, student[0][1].logits)
    moved = slope[2:].abs().sum(1, keepdim=True) > 0
    assert not bool(moved[mask == 0].any()) and bool(moved[mask == 1].any()) and not bool(slope[:2].any())


def test_every_answer_has_noise_of_its_own_and_only_the_samples_dropout() -> None:
    stage = stage_of(UncertaintyAware, noise=0.02, samples=4)
    step = step_of(stage, index=150, size=32)
    dropout = step.teacher["unet"].encoder[4][3]
    modes: list[bool] = []
    dropout.register_forward_hook(lambda module, *_: modes.append(module.training))
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    assert modes == [False, True, True, True, True] and not dropout.training
    noises = [images - student[0][0][3:] for images, _ in teacher]
    for n, noise in enumerate(noises):
        assert float(noise.std()) == pytest.approx(0.02, rel=0.1)
        assert not any(torch.equal(noise, other) for other in noises[:n])


def test_where_nobody_is_certain_there_is_no_loss_and_no_gradient() -> None:
    """A fresh network is near the entropy ln 4, twice the threshold; a sharp one is not."""
    stage = stage_of(UncertaintyAware)
    for factor, certain in ((0.01, False), (100.0, True)):
        step = sharpened(step_of(stage, index=150, size=32), factor)
        loss = stage.losses(step)["consistency"]
        loss.backward()
        assert (loss.item() > 0) == certain == (with_gradient(step.student) == {"unet"})


def test_the_masked_loss_by_hand() -> None:
    p = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]]).T.reshape(1, 2, 1, 3)
    q = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.9, 0.1]]).T.reshape(1, 2, 1, 3)
    certain = torch.tensor([True, True, False]).view(1, 1, 3)
    assert float(masked(p, q, certain)) == pytest.approx((0.25 + 0.25 + 0) / (2 * 2))
    assert float(masked(p, q, ~certain)) == pytest.approx((0.49 + 0.49) / 2)
    assert float(masked(p, q, torch.zeros_like(certain))) == 0
    assert float(masked(q, q, certain)) == 0


def test_more_pixels_are_certain_with_time() -> None:
    assert threshold(0) == pytest.approx((0.75 + 0.25 * math.exp(-5)) * math.log(2))
    assert threshold(0.5) == pytest.approx((0.75 + 0.25 * math.exp(-1.25)) * math.log(2))
    assert threshold(1) == pytest.approx(math.log(2))


def test_the_student_learns_and_the_teacher_does_not() -> None:
    stage = stage_of(UncertaintyAware)
    step = sharpened(step_of(stage, index=150, size=32), 20)
    step.teacher.requires_grad_(True)
    stage.losses(step)["consistency"].backward()
    assert with_gradient(step.student) == {"unet"}
    assert all(p.grad is None for p in step.teacher.parameters())


def test_the_samples_do_not_touch_the_teachers_running_statistics() -> None:
    after = []
    for samples in (1, 5):
        stage = stage_of(UncertaintyAware, samples=samples)
        step = step_of(stage, index=150, size=32)
        stage.losses(step)
        norm = step.teacher["unet"].encoder[0][1]
        after.append(norm.running_mean.clone())
        assert norm.momentum == 0.1
    assert torch.equal(*after) and bool(after[0].any())


def test_weights_average_settings_and_cost() -> None:
    assert stages_of("uamt") == (UncertaintyAware,) and UncertaintyAware.averaged == ("unet",)
    stage = stage_of(UncertaintyAware, consistency_weight=0.4)
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        now = math.exp(-5 * (1 - share) ** 2)
        assert weights_at(stage, index)["consistency"] == pytest.approx(0.4 * now)
        assert weights_at(stage_of(UncertaintyAware), index)["consistency"] == pytest.approx(0.1 * now)
    step = step_of(stage, size=32)
    without_dropout(step.student)
    assert "consistency" in stage.losses(step)  # from the first step on
    assert [stage.ema(following(step, n), 0.99) for n in (0, 1, 200)] == [0, 0.5, 0.99]
    settings = UncertaintyAware.Settings()
    assert (settings.samples, settings.noise, settings.noise_limit) == (8, 0.1, 0.2)
    assert UncertaintyAware.passes(settings) == pytest.approx(2.5)
    with pytest.raises(InputError, match=r"uamt\.samples must be 1 or greater"):
        UncertaintyAware.Settings(samples=0)
