"""Interpolation consistency: mixtures for the student, mixed answers of the teacher on the slices themselves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from helpers.steps import calls_of, following, seeded, stage_of, step_of, weights_at, with_gradient, without_dropout
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.augment import Fitted
from mona_train.methods.ict import Interpolation, Mixture, draw_shares
from mona_train.methods.registry import stages_of


def shares_of(plain: Tensor, mixed: Tensor) -> Tensor:
    """The share of the next slice in each mixture, by least squares; fails if it is no mixture of the two."""
    step = (plain.roll(-1, 0) - plain).flatten(1)
    shares = ((mixed - plain).flatten(1) * step).sum(1) / step.square().sum(1)
    torch.testing.assert_close(plain.flatten(1) + shares[:, None] * step, mixed.flatten(1), atol=1e-5, rtol=0)
    return shares.view(-1, 1, 1, 1)


@pytest.mark.parametrize("unlabelled", [2, 3, 5])
def test_losses_are_those_of_the_method(unlabelled: int) -> None:
    stage = stage_of(Interpolation, alpha=1.0)
    step = step_of(stage, index=150, size=32, labelled=2, unlabelled=unlabelled)
    without_dropout(step.student)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    loss = stage.losses(step)["consistency"]
    (images, out), (plain, taught) = student[0], teacher[0]
    assert len(student) == len(teacher) == 1 and len(images) == 2 + unlabelled and len(plain) == unlabelled
    shares = shares_of(plain, images[2:])
    assert float(shares.min()) > 0 and float(shares.max()) < 1 and len(shares.mul(1000).round().unique()) == unlabelled
    q = taught.logits.softmax(1)
    target = torch.stack([(1 - s) * q[n] + s * q[(n + 1) % unlabelled] for n, s in enumerate(shares.flatten())])
    torch.testing.assert_close(loss, (out.logits[2:].softmax(1) - target).square().mean(), atol=1e-7, rtol=1e-4)


def test_labelled_slices_are_not_mixed_and_the_teacher_sees_plain_ones() -> None:
    stage = stage_of(Interpolation)
    step = replace(step_of(stage, index=150, size=48), window=(32, 32), augment=Fitted())
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    g = seeded(150)
    weak = [Fitted().view(g, batch.images, window=(32, 32)).images for batch in (step.labelled, step.unlabelled)]
    seen = Fitted().appearance(g, torch.cat(weak), None)
    assert torch.equal(teacher[0][0], weak[1])
    assert torch.equal(student[0][0][:3], seen[:3])
    assert torch.equal(student[0][0][3:], Mixture(draw_shares(g, 3, 0.2).float()).of(seen[3:]))


def test_shares_are_from_a_beta_distribution_and_the_steps_generator() -> None:
    for alpha in (0.2, 1.0):
        drawn = draw_shares(seeded(), 20_000, alpha)
        assert drawn.shape == (20_000, 1, 1, 1)
        assert float(drawn.mean()) == pytest.approx(0.5, abs=0.01)
        assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.005)
    g = seeded()
    first, second = draw_shares(g, 4, 0.2), draw_shares(g, 4, 0.2)
    assert torch.equal(first, draw_shares(seeded(), 4, 0.2)) and not torch.equal(first, second)


def test_a_mixture_is_of_a_map_and_the_next_one() -> None:
    maps = torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1, 1)
    mixed = Mixture(torch.tensor([0.0, 0.5, 1.0]).view(3, 1, 1, 1)).of(maps)
    assert mixed.flatten().tolist() == [1.0, 3.0, 1.0]


def test_the_loss_is_0_where_there_is_nothing_between_two_slices() -> None:
    """One slice, mixed with itself, and a teacher that is the student; then two slices that differ."""
    stage = stage_of(Interpolation, alpha=100.0)  # near one half
    losses = []
    for unlabelled in (1, 2):
        step = step_of(stage, index=150, size=32, unlabelled=unlabelled)
        for network in (step.student["unet"], step.teacher["unet"]):
            network.eval()  # statistics of a batch would tell the student's batch from the teacher's
            network.head.weight.data.mul_(50)
        losses.append(stage.losses(step)["consistency"].item())
    assert losses[0] < 1e-10 < 1e-6 < losses[1]


def test_the_student_learns_and_the_teacher_does_not() -> None:
    stage = stage_of(Interpolation)
    step = step_of(stage, index=150, size=32)
    step.teacher.requires_grad_(True)
    stage.losses(step)["consistency"].backward()
    assert with_gradient(step.student) == {"unet"}
    assert all(p.grad is None for p in step.teacher.parameters())


def test_weights_average_and_settings() -> None:
    assert stages_of("ict") == (Interpolation,) and Interpolation.averaged == ("unet",)
    stage = stage_of(Interpolation, consistency_weight=0.4)
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        now = math.exp(-5 * (1 - share) ** 2)
        assert weights_at(stage, index)["consistency"] == pytest.approx(0.4 * now)
        assert weights_at(stage_of(Interpolation), index)["consistency"] == pytest.approx(0.1 * now)
    step = step_of(stage, size=32)
    assert "consistency" in stage.losses(step)  # from the first step on
    assert [stage.ema(following(step, n), 0.99) for n in (0, 1, 200)] == [0, 0.5, 0.99]
    assert stage.ema(replace(step, number=5000, index=1), 0.99) == 0.5
    assert list(stage.losses(step_of(stage, index=150, unlabelled=0, size=32))) == ["supervised"]
    assert stage_of(Interpolation).settings.alpha == 0.2
    with pytest.raises(InputError, match=r"ict\.alpha must be 0\.001 or greater"):
        stage_of(Interpolation, alpha=0.0)
