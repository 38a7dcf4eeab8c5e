"""FixMatch: confident pseudo-labels of the weak view, without dropout or gradient, for the strong view of one slice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, STILL, calls_of, following, seeded, stage_of, step_of, with_gradient, without_dropout
from helpers.told import quarter_turn, turned
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_train.augment import Fitted, published
from mona_train.losses.supervised import supervised
from mona_train.methods import fixmatch
from mona_train.methods.fixmatch import FixMatch, Settings
from mona_train.methods.registry import method_named


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(published, "weak", quarter_turn)
    monkeypatch.setattr(fixmatch, "STRENGTH", STILL)
    return monkeypatch


def masked(logits: Tensor, answer: Tensor, sure: float) -> Tensor:
    """Mean over all pixels of the cross-entropy of the sure ones."""
    p = answer.softmax(1)
    each = -logits.log_softmax(1).gather(1, p.argmax(1, keepdim=True))[:, 0]
    return (each * (p.amax(1) >= sure)).mean()


@pytest.mark.parametrize("sure", [0.0, 0.33])
def test_the_loss_is_that_of_the_paper(sure: float) -> None:
    stage = stage_of(FixMatch, sure=sure)
    step = step_of(stage, labelled=2, unlabelled=3, size=32)
    student = calls_of(step.student["unet"])
    losses = stage.losses(step)
    (weak, answer), (images, out) = student
    assert len(weak) == 3 and len(images) == 5 and len(student) == 2
    share = float((answer.logits.softmax(1).amax(1) >= sure).float().mean())
    assert share == 1 if sure == 0 else 0.05 < share < 0.95  # the test can tell
    torch.testing.assert_close(losses["consistency"], masked(out.logits[2:], answer.logits, sure))
    assert list(losses) == ["supervised", "consistency"]


def test_labels_count_half_and_weights_do_not_ramp(still: pytest.MonkeyPatch) -> None:
    stage = stage_of(FixMatch)
    step = step_of(stage, size=32)
    student = calls_of(step.student["unet"])
    losses = stage.losses(step)
    out = student[1][1]
    torch.testing.assert_close(losses["supervised"], 0.5 * supervised(out.logits[:3], turned(step.labelled.labels)))
    for index in (0, 150, 299):
        assert stage.weights(replace(step, index=index)) == {"consistency": 1.0}
    assert stage_of(FixMatch, consistency_weight=0.2).weights(step) == {"consistency": 0.2}


def test_the_strong_view_shows_the_same_pixels_with_other_intensities(still: pytest.MonkeyPatch) -> None:
    stage = stage_of(FixMatch)
    step = step_of(stage, size=32)
    student = calls_of(step.student["unet"])
    stage.losses(step)
    assert torch.equal(student[0][0], turned(step.unlabelled.images))
    assert torch.equal(student[1][0], turned(torch.cat([step.labelled.images, step.unlabelled.images])))
    still.undo()
    step = following(step)
    stage.losses(step)
    weak, strong = student[2][0], student[3][0][3:]
    assert weak.shape == strong.shape and not torch.equal(weak, strong)


def test_with_the_fitted_augmentation_pseudo_labels_are_of_the_plain_view() -> None:
    stage = stage_of(FixMatch)
    step = replace(step_of(stage, size=48), window=(32, 32), augment=Fitted())
    student = calls_of(step.student["unet"])
    stage.losses(step)
    g = seeded(0)
    weak = [Fitted().view(g, batch.images, window=(32, 32)).images for batch in (step.labelled, step.unlabelled)]
    assert torch.equal(student[0][0], weak[1])
    look = Fitted().appearance(g, torch.cat(weak), None)
    assert torch.equal(student[1][0], torch.cat([look[:3], Fitted().appearance(g, weak[1], None)]))


def test_pseudo_labels_are_made_without_dropout_gradient_or_trace() -> None:
    stage = stage_of(FixMatch)
    step = step_of(stage, size=32)
    unet = step.student["unet"]
    before = [m.running_mean.clone() for m in unet.modules() if isinstance(m, nn.BatchNorm2d)]
    weak = torch.rand(3, 1, 32, 32)
    found = [fixmatch.pseudo_labels(step, weak) for _ in range(2)]
    assert torch.equal(found[0].logits, found[1].logits) and not found[0].logits.requires_grad
    after = [m.running_mean for m in unet.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(m.training for m in unet.modules())
    without_dropout(unet)
    with fixmatch.without_dropout(unet):
        pass
    assert not any(m.training for m in unet.modules() if isinstance(m, nn.Dropout))  # it was off before


def test_the_gradient_is_that_of_the_strong_view() -> None:
    stage = stage_of(FixMatch, sure=0.0)
    step = step_of(stage, size=32)
    student = calls_of(step.student["unet"])
    loss = stage.losses(step)["consistency"]
    logits = student[1][1].logits
    logits.retain_grad()
    loss.backward()
    assert with_gradient(step.student) == {"unet"} and not step.teacher and stage.averaged == ()
    assert not logits.grad[:3].any() and bool(logits.grad[3:].any())


def test_without_confident_pixels_nothing_is_learned() -> None:
    for kind in ("ce", "dice"):
        stage = stage_of(FixMatch, sure=1.0, pseudo_loss=kind)
        assert float(stage.losses(step_of(stage, size=32))["consistency"]) == 0


def test_dice_counts_confident_pixels_alone() -> None:
    stage = stage_of(FixMatch, pseudo_loss="dice", sure=0.5)
    g = seeded()
    logits, labels = torch.randn(2, CLASSES, 8, 8, generator=g), torch.randint(0, CLASSES, (2, 8, 8), generator=g)
    confidence = torch.rand(2, 8, 8, generator=g)
    p, y = logits.softmax(1), F.one_hot(labels, CLASSES).movedim(-1, 1)
    w = (confidence >= 0.5)[:, None]
    both, squares = (w * p * y).sum((0, 2, 3)), (w * (p**2 + y)).sum((0, 2, 3))
    torch.testing.assert_close(
        stage.judge(logits, labels, confidence), (1 - (2 * both + 1e-5) / (squares + 1e-5)).mean()
    )


@pytest.mark.parametrize("mix", [0.0, 1.0])
def test_labels_and_confidence_are_mixed_as_the_images_are(still: pytest.MonkeyPatch, mix: float) -> None:
    stage = stage_of(FixMatch, mix=mix)
    step = step_of(stage, size=32)
    numbers = (torch.arange(3) / 4)[:, None, None, None].expand(3, 1, 32, 32)
    images, drawn = stage.strong(step, numbers.contiguous())
    assert bool((images != numbers).flatten(1).any(1).all()) == (mix == 1)
    judged: list[Any] = []
    still.setattr(FixMatch, "judge", lambda self, *given: judged.append(given) or torch.zeros(()))
    student = calls_of(step.student["unet"])
    stage.losses(step)
    (weak, answer), (seen, _) = student
    confidence, labels = answer.logits.softmax(1).max(1)
    foreign = seen[3:] != weak
    partner = [1, 2, 0]
    expected = torch.where(foreign[:, 0], labels[partner], labels)
    assert float((judged[0][1] == expected).float().mean()) > 0.999
    torch.testing.assert_close(judged[0][2], torch.where(foreign[:, 0], confidence[partner], confidence))
    assert bool(foreign.any()) == (mix == 1) and drawn.partner.tolist() == partner


def test_without_unlabelled_slices_only_the_supervised_loss_is_left() -> None:
    stage = stage_of(FixMatch)
    assert list(stage.losses(step_of(stage, unlabelled=0, size=32))) == ["supervised"]


def test_settings_are_those_of_the_paper() -> None:
    s = Settings()
    assert (s.sure, s.consistency_weight, s.supervised_scale, s.mix, s.pseudo_loss) == (0.95, 1.0, 0.5, 0.0, "ce")
    for wrong in ({"sure": 1.1}, {"mix": -0.1}):
        with pytest.raises(InputError, match=f"fixmatch.{next(iter(wrong))}"):
            Settings(**wrong)
    assert method_named("fixmatch").stages == (FixMatch,)
