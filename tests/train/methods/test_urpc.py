"""Pyramid consistency: four scales fit the labels and agree with their mean, less where they are uncertain."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import calls_of, seeded, stage_of, step_of, weights_at, with_gradient
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.losses.supervised import supervised
from mona_train.methods import several_answers
from mona_train.methods.registry import stages_of
from mona_train.methods.urpc import PyramidConsistency, rectified


def published(probabilities: list[Tensor]) -> Tensor:
    """The lines of SSL4MIS: mean answer, KL of each, weighted distance."""
    mean, losses = sum(probabilities) / len(probabilities), []
    for p in probabilities:
        variance = F.kl_div(p.log(), mean, reduction="none").sum(1, keepdim=True)
        trust = torch.exp(-variance)
        losses.append(((mean - p) ** 2 * trust).mean() / (trust.mean() + 1e-8) + variance.mean())
    return sum(losses) / len(losses)


def logits_of(scales: int = 4, spread: float = 2.0) -> list[Tensor]:
    drawn = spread * torch.randn(scales, 2, 3, 8, 8, generator=seeded())
    return [logits.requires_grad_() for logits in drawn.unbind()]


def test_the_loss_and_its_gradient_are_the_published_ones() -> None:
    logits = logits_of()
    loss, expected = rectified(logits), published([x.softmax(1) for x in logits])
    torch.testing.assert_close(loss, expected)
    for mine, theirs in zip(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits), strict=True):
        torch.testing.assert_close(mine, theirs)
        assert bool(mine.any())  # nothing is detached


def test_the_loss_is_0_only_where_all_scales_agree() -> None:
    same = logits_of(1) * 4
    assert abs(rectified(same).item()) < 1e-6
    other = [*same[:3], same[0].roll(1, 1)]
    assert rectified(other).item() > 0.1


def test_one_pixel_by_hand() -> None:
    """m = (p + q) / 2 of two answers about one pixel: the trust cancels, and V is a Jensen-Shannon half."""
    p, q = torch.tensor([0.9, 0.1]), torch.tensor([0.3, 0.7])
    m = (p + q) / 2
    expected = sum(float((m - x).square().mean() + (m * (m / x).log()).sum()) for x in (p, q)) / 2
    assert float(rectified([x.log().view(1, 2, 1, 1) for x in (p, q)])) == pytest.approx(expected, rel=1e-5)


def test_uncertain_pixels_count_less() -> None:
    """Two pixels of one answer: where it differs most from the mean, its distance is weighed by exp(-V)."""
    p = torch.tensor([[0.6, 0.4], [0.999, 0.001]]).T.reshape(1, 2, 1, 2)
    q = torch.tensor([[0.5, 0.5], [0.001, 0.999]]).T.reshape(1, 2, 1, 2)
    m, plain = (p + q) / 2, 0.0
    for x in (p, q):
        plain += float((m - x).square().mean() + (m * (m / x).log()).sum(1).mean()) / 2
    assert float(rectified([p.log(), q.log()])) < plain - 0.02


def test_probabilities_that_underflow_do_no_harm() -> None:
    sure = [torch.tensor([1000.0, 0.0]).view(1, 2, 1, 1).requires_grad_(), torch.zeros(1, 2, 1, 1).requires_grad_()]
    loss = rectified(sure)
    assert bool(loss.isfinite()) and all(bool(g.isfinite().all()) for g in torch.autograd.grad(loss, sure))


def test_losses_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(PyramidConsistency)
    step = step_of(stage, index=150, size=32, labelled=2, unlabelled=4)
    main, heads = calls_of(step.student["unet"]), calls_of(step.student["pyramid_heads"])
    judged: list[Tensor] = []
    monkeypatch.setattr(
        several_answers, "supervised", lambda logits, labels: judged.append(labels) or supervised(logits, labels)
    )
    losses = stage.losses(step)
    assert len(main) == len(heads) == 1
    outputs = [main[0][1].logits, *heads[0][1]]
    assert [tuple(logits.shape) for logits in outputs] == [(6, 4, 32, 32)] * 4
    expected = sum(supervised(logits[:2], judged[0]) for logits in outputs) / 8
    torch.testing.assert_close(losses["supervised"], expected)
    torch.testing.assert_close(losses["consistency"], published([logits[2:].softmax(1) for logits in outputs]))
    losses["consistency"].backward()
    assert with_gradient(step.student) == {"unet", "pyramid_heads"}
    assert all(bool(head.weight.grad.any()) for head in step.student["pyramid_heads"].heads)
    assert bool(step.student["unet"].head.weight.grad.any())


def test_settings_reach_the_networks_and_the_weight() -> None:
    assert stages_of("urpc") == (PyramidConsistency,)
    stage = stage_of(PyramidConsistency, noise=0.05, dropout=0.15, consistency_weight=0.4)
    dropout, attention, noise = stage.networks()["pyramid_heads"].perturbations
    assert (noise.span, dropout.p, attention.low, attention.high) == (0.05, 0.15, 0.7, 0.9)
    dropout, _, noise = stage_of(PyramidConsistency).networks()["pyramid_heads"].perturbations
    assert (noise.span, dropout.p) == (0.3, 0.5)
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        assert weights_at(stage, index)["consistency"] == pytest.approx(0.4 * math.exp(-5 * (1 - share) ** 2))
    with pytest.raises(InputError, match=r"urpc\.noise must be from 0 to 1"):
        stage_of(PyramidConsistency, noise=-0.1)
