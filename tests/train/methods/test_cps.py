"""Cross pseudo supervision: each network learns the other's hard answers, on unlabelled slices alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.small_runs import small_config, train, trainer_of
from helpers.steps import CLASSES, calls_of, seeded, stage_of, step_of, weights_at, with_gradient
from torch import Tensor, nn

from mona_train.losses.supervised import supervised
from mona_train.methods import cps
from mona_train.methods.consistency import Batch
from mona_train.methods.cps import CPS

IMAGES = torch.zeros(5, 1, 8, 8)
BATCH = Batch(IMAGES, IMAGES, torch.zeros(2, 8, 8, dtype=torch.int64))  # two labelled, three not


def logits(seed: int) -> Tensor:
    return torch.randn(5, CLASSES, 8, 8, generator=seeded(seed)).requires_grad_()


def agree(first: Tensor, second: Tensor) -> Tensor:
    stage: Any = stage_of(CPS)
    return stage.agree(None, BATCH, (SimpleNamespace(logits=first), SimpleNamespace(logits=second)))


def test_the_loss_is_cross_entropy_with_the_others_class() -> None:
    first, second = logits(1), logits(2)
    expected = 0.0
    for mine, other in ((first[2:], second[2:]), (second[2:], first[2:])):
        p = mine.softmax(1).movedim(1, -1).reshape(-1, CLASSES)
        chosen = other.argmax(1).flatten()
        expected += -p[torch.arange(len(p)), chosen].log().mean()
    torch.testing.assert_close(agree(first, second), expected)


def test_each_network_gets_the_gradient_of_its_own_term_alone() -> None:
    first, second = logits(1), logits(2)
    agree(first, second).backward()
    for mine, other in ((first, second), (second, first)):
        one_hot = torch.nn.functional.one_hot(other[2:].argmax(1), CLASSES).movedim(-1, 1)
        torch.testing.assert_close(mine.grad[2:], (mine[2:].softmax(1) - one_hot) / (3 * 64))
        assert not mine.grad[:2].any()  # labelled slices have no pseudo-labels


def test_sure_networks_that_agree_have_nothing_to_learn() -> None:
    sure = 50.0 * torch.nn.functional.one_hot(logits(1).argmax(1), CLASSES).movedim(-1, 1).float()
    assert float(agree(sure, sure)) < 1e-6
    assert float(agree(sure, sure.roll(1, 1))) == pytest.approx(100, rel=1e-3)  # sure of different classes


def test_both_networks_fit_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(CPS, supervised_scale=0.7)
    step = step_of(stage, index=150, labelled=2, size=32)
    first, second = calls_of(step.student["unet"]), calls_of(step.student["second"])
    labels: list[Tensor] = []
    monkeypatch.setattr(cps, "supervised", lambda out, given: (labels.append(given), supervised(out, given))[1])
    losses = stage.losses(step)
    ((seen, out), (also, other)) = first[0], second[0]
    assert torch.equal(seen, also) and len(seen) == 5 and len(first) == len(second) == 1
    fits = [supervised(one.logits[:2], labels[0]) for one in (out, other)]
    torch.testing.assert_close(losses["supervised"], 0.7 * (fits[0] + fits[1]))
    torch.testing.assert_close(
        losses["consistency"],
        nn.functional.cross_entropy(out.logits[2:], other.logits[2:].argmax(1))
        + nn.functional.cross_entropy(other.logits[2:], out.logits[2:].argmax(1)),
    )
    for loss in losses.values():
        step.student.zero_grad()
        loss.backward(retain_graph=True)
        assert with_gradient(step.student) == {"unet", "second"}


def test_they_start_from_different_kinds_of_weights() -> None:
    torch.manual_seed(0)
    networks = CPS(CPS.Settings(), classes=CLASSES, width=1.0).networks()
    for name, variance in (
        ("unet", lambda a, b: 2 / (9 * a)),  # Kaiming: by what comes in
        ("second", lambda a, b: 2 / (9 * (a + b))),  # Xavier: and by what goes out
    ):
        convolution = networks[name].encoder[4][0]  # 128 to 256 channels
        assert float(convolution.weight.std()) == pytest.approx(math.sqrt(variance(128, 256)), rel=0.02), name
        norm = networks[name].encoder[4][1]
        assert bool((norm.weight == 1).all()) and not bool(norm.bias.any())


def test_weights_follow_the_ramp_of_the_family() -> None:
    stage = stage_of(CPS)
    assert weights_at(stage, 0)["consistency"] == pytest.approx(0.1 * math.exp(-5), rel=1e-5)
    assert weights_at(stage, 150)["consistency"] == pytest.approx(0.1 * math.exp(-5 * 0.5**2), rel=1e-5)
    assert weights_at(stage_of(CPS, consistency_weight=0.5), 299)["consistency"] == pytest.approx(0.5, rel=1e-3)
    assert list(stage.losses(step_of(stage, index=150, unlabelled=0, size=32))) == ["supervised"]


@pytest.mark.parametrize("average", [False, True])
def test_validation_can_choose_either(average: bool) -> None:
    trainer = train(trainer_of(small_config("cps", steps=2, average=average)))
    assert trainer.stage.rivals == ("second",)
    assert {"unet", "second"} <= set(trainer.answering)
    trainer.network.load_state_dict(trainer.answering["second"].state_dict())
