"""Deep adversarial networks: who is shown what, which answer each wants, and that neither trains the other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers.small_runs import small_config, train, trainer_of
from helpers.steps import CLASSES, calls_of, stage_of, step_of, weights_at, with_gradient
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_train.methods.base import Step
from mona_train.methods.dan import DAN
from mona_train.networks.discriminator import Discriminator

LABELLED, UNLABELLED = 2, 3  # as many of each would hide a target of the wrong length


def made(**settings: Any) -> tuple[DAN, Step]:
    stage: Any = stage_of(DAN, **settings)
    return stage, step_of(stage, index=150, labelled=LABELLED, unlabelled=UNLABELLED, size=32)


def verdicts_of(discriminator: nn.Module) -> list[tuple[Tensor, Tensor, Tensor, bool]]:
    """Maps, images and verdict of every call from now on, and whether it was in training mode."""
    seen: list[tuple[Tensor, Tensor, Tensor, bool]] = []
    discriminator.register_forward_hook(lambda d, given, out: seen.append((*given, out, d.training)))
    return seen


def biased(step: Step, labelled: float) -> None:
    """A discriminator that says "labelled" with this logit, whatever it sees."""
    last = step.student["discriminator"].verdict
    nn.init.zeros_(last.weight)
    last.bias.data = torch.tensor([0.0, labelled])


@pytest.mark.parametrize("size", [(32, 32), (48, 80), (64, 32)])
def test_the_discriminator_takes_slices_of_any_size(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    judge = Discriminator(CLASSES, width=0.25).eval()
    maps, images = torch.rand(3, CLASSES, *size), torch.rand(3, 1, *size)
    verdict = judge(maps, images)
    assert verdict.shape == (3, 2)
    assert not torch.equal(verdict, judge(maps.flip(1), images))
    assert not torch.equal(verdict, judge(maps, images.flip(0)))


def test_the_discriminator_is_the_published_one_but_for_its_pooling() -> None:
    judge = Discriminator(4)
    count = 64 * (4 * 16 + 1) + 64 * (16 + 1)
    count += sum(b * (16 * a + 1) for a, b in ((64, 128), (128, 256), (256, 512))) + 2 * (2048 + 1)
    assert sum(p.numel() for p in judge.parameters()) == count


def test_the_segmenter_wants_unlabelled_slices_to_be_taken_for_labelled_ones() -> None:
    stage, step = made()
    seen, asked = verdicts_of(step.student["discriminator"]), calls_of(step.student["unet"])
    losses = stage.losses(step)
    ((maps, images, verdict, training),) = seen
    ((given, out),) = asked
    assert not training and step.student["discriminator"].training
    torch.testing.assert_close(maps, out.logits[LABELLED:].softmax(1))
    assert torch.equal(images, given[LABELLED:])
    torch.testing.assert_close(losses["consistency"], -verdict.softmax(1)[:, 1].log().mean())


@pytest.mark.parametrize("logit", [-3.0, 0.0, 3.0])
def test_both_losses_in_closed_form(logit: float) -> None:
    stage, step = made()
    biased(step, logit)
    labelled, unlabelled = math.log1p(math.exp(-logit)), math.log1p(math.exp(logit))
    assert float(stage.losses(step)["consistency"]) == pytest.approx(labelled, rel=1e-5)
    expected = (LABELLED * labelled + UNLABELLED * unlabelled) / (LABELLED + UNLABELLED)
    assert float(stage.judge(step)["discriminator"]) == pytest.approx(expected, rel=1e-5)


def test_the_discriminator_learns_which_slices_are_labelled() -> None:
    stage, step = made()
    seen, modes = verdicts_of(step.student["discriminator"]), []
    step.student["unet"].register_forward_hook(lambda unet, *_: modes.append(unet.training))
    loss = stage.judge(step)["discriminator"]
    ((maps, images, verdict, training),) = seen
    assert training and modes == [False] and step.student["unet"].training
    assert len(images) == LABELLED + UNLABELLED and not maps.requires_grad
    torch.testing.assert_close(maps.sum(1), torch.ones(5, 32, 32))
    log_p = verdict.log_softmax(1)
    right = torch.cat([log_p[:LABELLED, 1], log_p[LABELLED:, 0]])
    torch.testing.assert_close(loss, -right.mean())


def test_each_turn_trains_its_own_network() -> None:
    stage, step = made()
    stage.losses(step)["consistency"].backward()
    assert with_gradient(step.student) == {"unet"}
    step.student.zero_grad()
    stage.judge(step)["discriminator"].backward()
    assert with_gradient(step.student) == {"discriminator"}
    assert all(p.requires_grad for p in step.student.parameters())
    assert [turn.networks for turn in stage.turns()] == [("unet",), ("discriminator",)]


def test_weights_and_settings() -> None:
    stage, step = made()
    assert stage.weights(step) == {"consistency": pytest.approx(0.1 * math.exp(-5 * 0.5**2))}
    assert weights_at(stage, 0)["consistency"] == pytest.approx(0.1 * math.exp(-5), rel=1e-5)
    assert weights_at(stage_of(DAN, consistency_weight=0.4), 299)["consistency"] == pytest.approx(0.4, rel=1e-3)
    assert stage.turns()[1].optimiser["lr"] == 1e-4
    assert stage_of(DAN, discriminator_lr=3e-3).turns()[1].optimiser["lr"] == 3e-3
    with pytest.raises(InputError, match=r"dan\.discriminator_lr must be 0 or greater"):
        stage_of(DAN, discriminator_lr=-1.0)


def test_without_unlabelled_slices_only_labels_are_left() -> None:
    stage: Any = stage_of(DAN)
    step = step_of(stage, index=150, unlabelled=0, size=32)
    assert list(stage.losses(step)) == ["supervised"] and list(stage.judge(step)) == ["discriminator"]


def test_in_a_run_the_discriminator_has_adam_at_a_constant_rate() -> None:
    trainer = train(trainer_of(small_config("dan", steps=4)))
    (_, _, sgd), (_, settings, adam) = trainer._turns
    assert isinstance(adam.optimizer, torch.optim.Adam) and not isinstance(adam.optimizer, torch.optim.AdamW)
    group = adam.param_groups[0]
    assert group["lr"] == settings.lr == 1e-4 and group["betas"] == (0.9, 0.99) and group["weight_decay"] == 0
    assert sgd.param_groups[0]["lr"] < 0.01
