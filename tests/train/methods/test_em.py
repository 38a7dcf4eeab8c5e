"""Entropy minimisation: a share of the largest entropy, of labelled and unlabelled pixels, that falls."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import calls_of, seeded, stage_of, step_of, weights_at, with_gradient

from mona_infer.errors import InputError
from mona_train.methods.em import EntropyMinimisation, entropy
from mona_train.methods.registry import stages_of


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_entropy_is_1_for_no_idea_and_0_for_certainty(classes: int) -> None:
    assert float(entropy(torch.full((2, classes, 4, 4), 3.0))) == pytest.approx(1)
    certain = torch.zeros(2, classes, 4, 4)
    certain[:, 1] = 1000.0  # p of the others underflows
    assert float(entropy(certain)) == 0
    entropy(certain.requires_grad_()).backward()
    assert certain.grad is not None and bool(certain.grad.isfinite().all())


def test_entropy_is_the_published_one() -> None:
    p = (3 * torch.randn(2, 4, 8, 8, generator=seeded())).softmax(1)
    published = -(p * torch.log(p + 1e-6)).sum(1) / math.log(4)
    assert float(entropy(p.log())) == pytest.approx(float(published.mean()), abs=1e-5)
    two = torch.tensor([0.25, 0.75]).log().view(1, 2, 1, 1)
    assert float(entropy(two)) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3), abs=1e-6)


def test_every_slice_of_the_batch_counts() -> None:
    stage = stage_of(EntropyMinimisation)
    step = step_of(stage, index=150, size=32, labelled=2, unlabelled=4)
    student = calls_of(step.student["unet"])
    losses = stage.losses(step)
    logits = student[0][1].logits
    assert len(student) == 1 and len(logits) == 6
    p = logits.softmax(1)
    torch.testing.assert_close(losses["consistency"], -(p * p.log()).sum(1).mean() / math.log(4))
    (slope,) = torch.autograd.grad(losses["consistency"], logits, retain_graph=True)
    assert bool(slope.flatten(1).any(1).all())
    losses["consistency"].backward()
    assert with_gradient(step.student) == {"unet"} and len(step.teacher) == 0


def test_learning_makes_answers_more_certain() -> None:
    logits = torch.randn(1, 4, 8, 8, generator=seeded()).requires_grad_()
    before = entropy(logits)
    (slope,) = torch.autograd.grad(before, logits)
    assert entropy(logits - 10 * slope) < before - 1e-3


def test_the_weight_rises_over_the_run_and_is_what_was_set() -> None:
    assert stages_of("em") == (EntropyMinimisation,)
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        now = math.exp(-5 * (1 - share) ** 2)
        assert weights_at(stage_of(EntropyMinimisation), index)["consistency"] == pytest.approx(0.1 * now)
        stage = stage_of(EntropyMinimisation, consistency_weight=2.0)
        assert weights_at(stage, index)["consistency"] == pytest.approx(2 * now)
    off = stage_of(EntropyMinimisation, consistency_weight=0.0)
    assert list(off.losses(step_of(off, index=150, size=32))) == ["supervised"]
    with pytest.raises(InputError, match="consistency_weight must be 0 or greater"):
        stage_of(EntropyMinimisation, consistency_weight=-1.0)
