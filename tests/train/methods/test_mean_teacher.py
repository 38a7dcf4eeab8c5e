"""Mean Teacher: the published ramp at any length, noise for the teacher alone, gradient for the student alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import calls_of, following, seeded, stage_of, step_of, with_gradient, without_dropout

from mona_train.augment import Fitted
from mona_train.losses.supervised import supervised
from mona_train.methods import consistency
from mona_train.methods.mean_teacher import MeanTeacher, ramp


def published(t: int) -> float:
    """SSL4MIS, of 30,000 steps, without its factor 0.1."""
    return 0.0 if t < 1000 else math.exp(-5 * (1 - min(t // 150, 200) / 200) ** 2)


def test_the_ramp_is_the_published_one_at_30000_steps() -> None:
    for t in (0, 1, 999, 1000, 1049, 1050, 1199, 1200, 7499, 7500, 15_000, 29_849, 29_850, 29_999):
        assert ramp(t, 30_000) == pytest.approx(published(t), rel=1e-6), t
    assert ramp(999, 30_000) == 0 < ramp(1000, 30_000)


@pytest.mark.parametrize("steps", [300, 3000, 60_000])
def test_a_run_of_any_length_sees_the_same_ramp(steps: int) -> None:
    for share in (0, 1 / 40, 1 / 30, 1 / 20, 0.25, 0.5, 0.9, 0.995):
        index = math.ceil(share * steps - 1e-9)
        assert ramp(index, steps) == pytest.approx(published(index * 30_000 // steps), rel=1e-6), share
    first = steps // 30
    assert ramp(0, steps) == ramp(first - 1, steps) == 0 < ramp(first, steps)


def test_consistency_is_missing_until_it_starts_and_the_teacher_is_not_asked() -> None:
    stage = stage_of(MeanTeacher)
    step = step_of(stage, steps=90, size=32)
    asked = calls_of(step.teacher["unet"])
    for index, started in [(0, False), (2, False), (3, True), (89, True)]:
        losses = stage.losses(following(step, index))
        assert list(losses) == ["supervised", *(["consistency"] if started else [])]
        assert len(asked) == (index >= 3) + (index >= 89)


def test_losses_are_those_of_the_method() -> None:
    stage = stage_of(MeanTeacher)
    step = step_of(stage, index=150, steps=300)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    losses = stage.losses(step)
    (images, out), (noisy, taught) = student[0], teacher[0]
    assert len(student) == len(teacher) == 1 and len(images) == 6 and len(noisy) == 3
    found, target = out.logits[3:].softmax(1), taught.logits.softmax(1)
    now = math.exp(-5 * 0.5**2)
    torch.testing.assert_close(losses["consistency"], (found - target).square().mean())
    assert stage.weights(step) == {"consistency": pytest.approx(0.1 * now)}

    noise = noisy - images[3:]
    assert noise.abs().max() <= 0.2 + 1e-6
    assert (noise.abs() > 0.2 - 1e-6).float().mean() == pytest.approx(0.0455, abs=0.01)  # beyond two sigmas, clipped
    assert noise[noise.abs() < 0.1].std() == pytest.approx(0.054, abs=0.003)  # a normal one of sigma 0.1 within one


def test_weight_and_noise_are_what_was_set() -> None:
    stage = stage_of(MeanTeacher, consistency_weight=0.3, noise=0.02, noise_limit=0.03)
    step = step_of(stage, index=150)
    assert stage.weights(step) == {"consistency": pytest.approx(0.3 * math.exp(-5 * 0.5**2))}
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    noise = teacher[0][0] - student[0][0][3:]
    assert float(noise.abs().max()) == pytest.approx(0.03, abs=1e-6)
    assert float(noise[noise.abs() < 0.02].std()) == pytest.approx(0.0108, abs=0.0006)


def test_the_labelled_come_first_and_count_half(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(MeanTeacher)
    step = following(step_of(stage), 4)
    student = calls_of(step.student["unet"])
    labels: list[torch.Tensor] = []

    def kept(logits: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        labels.append(given)
        return supervised(logits, given)

    monkeypatch.setattr(consistency, "supervised", kept)
    loss = stage.losses(step)["supervised"]
    images, out = student[0]
    torch.testing.assert_close(loss, 0.5 * supervised(out.logits[:3], labels[0]))
    middle = (slice(None), slice(8, -8), slice(8, -8))
    seen = F.avg_pool2d(images[:3], 3, 1, 1)[:, 0]  # images are 0.9 n/3 + noise: where n is larger, it is brighter
    for n in range(3):
        label = labels[0][middle]
        assert seen[middle][label == n].mean() + 0.15 < seen[middle][label == n + 1].mean()
    assert images[:3].shape[0] + step.unlabelled.images.shape[0] == len(images)


def test_the_student_learns_and_the_teacher_does_not() -> None:
    stage = stage_of(MeanTeacher)
    step = step_of(stage, index=200)
    step.teacher.requires_grad_(True)  # even if somebody forgot to freeze it
    losses = stage.losses(step)
    losses["consistency"].backward()
    assert with_gradient(step.student) == {"unet"}
    assert all(p.grad is None for p in step.teacher.parameters())


def test_noise_comes_from_the_steps_generator() -> None:
    def once(index: int, elsewhere: int) -> torch.Tensor:
        stage = stage_of(MeanTeacher)
        step = step_of(stage, index=index, size=32)
        without_dropout(step.student)
        torch.manual_seed(elsewhere)
        return stage.losses(step)["consistency"].detach()

    assert torch.equal(once(200, 1), once(200, 2)) and not torch.equal(once(200, 1), once(201, 1))


def test_the_average_starts_as_a_plain_mean() -> None:
    stage = stage_of(MeanTeacher)
    step = step_of(stage)
    assert stage.ema(step, 0.99) == 0  # the first student as it is
    assert stage.ema(following(step, 1), 0.99) == 0.5
    assert stage.ema(following(step, 98), 0.99) == pytest.approx(1 - 1 / 99)
    assert stage.ema(following(step, 200), 0.99) == 0.99
    assert stage.ema(replace(step, number=5000, index=1), 0.99) == 0.5  # of the students of this stage
    assert stage.averaged == ("unet",)


def test_without_unlabelled_slices_only_the_supervised_loss_is_left() -> None:
    stage = stage_of(MeanTeacher)
    assert list(stage.losses(step_of(stage, index=200, unlabelled=0, size=32))) == ["supervised"]


def test_the_student_learns_from_another_appearance_than_the_teachers() -> None:
    stage = stage_of(MeanTeacher, noise=0.0)
    step = replace(step_of(stage, index=150, size=48), window=(32, 32), augment=Fitted())
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    g = seeded(150)
    weak = [Fitted().view(g, batch.images, window=(32, 32)).images for batch in (step.labelled, step.unlabelled)]
    assert torch.equal(teacher[0][0], weak[1])
    assert torch.equal(student[0][0], Fitted().appearance(g, torch.cat(weak), None))
