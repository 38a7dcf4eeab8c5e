"""GLCon's wiring: settings, views and windows reach what they are for (method 3); losses worked out again by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, following, stage_of, step_of
from helpers.told import quarter_turn
from torch import Tensor

from mona_train import augment
from mona_train.augment import published
from mona_train.losses.supervised import supervised
from mona_train.methods import glcon
from mona_train.methods.glcon import GLCon


def test_settings_are_those_of_the_method() -> None:
    s = GLCon.Settings()
    assert (s.bank, s.windows, s.jitter) == (36, 6, 1 / 16)
    assert (s.student_temperature, s.teacher_temperature) == (0.1, 0.01)  # difference 7
    assert (s.global_weight, s.local_weight, s.supervised_scale) == (1.0, 1.0, 1.0)
    assert glcon.GLCON is augment.GLCON and not GLCon.nesterov


def test_only_the_students_view_is_jittered_and_with_the_strength_of_pre_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strengths: list[Any] = []

    def jitter(_: Any, images: Tensor, strength: Any) -> Tensor:
        strengths.append(strength)
        return images / 2

    monkeypatch.setattr(published, "jitter", jitter)
    stage = stage_of(GLCon, windows=2)
    step = step_of(stage, size=32)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    assert torch.equal(student[0][0], teacher[0][0] / 2)
    assert strengths == [augment.GLCON]


@pytest.mark.parametrize("still", [True, False])
def test_windows_lie_on_their_grid_moved_by_the_jitter_that_was_set(still: bool) -> None:
    """3 x 3 windows of 16 of 64 pixels: origins 0, 24, 48, and by default up to 4 pixels off."""
    stage = stage_of(GLCon, windows=3, **({"jitter": 0.0} if still else {}))
    step = step_of(stage)
    unet, local = calls_of(step.teacher["unet"]), calls_of(step.teacher["local"])
    stage.losses(step)
    logits, windows = unet[0][1].logits, local[0][0]
    assert windows.shape == (6, 9, CLASSES, 16, 16)
    origins = [(y, x) for y in (0, 24, 48) for x in (0, 24, 48)]
    on_grid = [torch.equal(windows[:, i], logits[:, :, y : y + 16, x : x + 16]) for i, (y, x) in enumerate(origins)]
    if still:
        assert all(on_grid)
        return
    assert not all(on_grid)
    for i, (y, x) in enumerate(origins):
        near = [(y + dy, x + dx) for dy in range(-4, 5) for dx in range(-4, 5)]
        inside = [(a, b) for a, b in near if 0 <= a <= 48 and 0 <= b <= 48]
        assert any(torch.equal(windows[:, i], logits[:, :, a : a + 16, b : b + 16]) for a, b in inside)


@pytest.mark.parametrize(
    ("off", "calls"),
    [
        (("local_weight",), {"unet": 1, "projector": 1, "local": 0}),
        (("global_weight",), {"unet": 1, "projector": 0, "local": 1}),
        (("global_weight", "local_weight"), {"unet": 0, "projector": 0, "local": 0}),
    ],
)
def test_relations_of_weight_0_cost_nothing(off: tuple[str, ...], calls: dict[str, int]) -> None:
    stage = stage_of(GLCon, windows=2, bank=6, **dict.fromkeys(off, 0.0))
    step = step_of(stage, size=32)
    taught = {name: calls_of(network) for name, network in step.teacher.items()}
    stage.losses(step)
    assert {name: len(seen) for name, seen in taught.items()} == calls
    losses = stage.losses(following(step))
    names = {"global": "global_weight", "local": "local_weight"}
    assert set(losses) == {"supervised"} | {name for name, weight in names.items() if weight not in off}


def test_only_labelled_slices_are_pasted_into_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "weak", quarter_turn)
    monkeypatch.setattr(published, "jitter", lambda _, images, __: images)
    stage = stage_of(GLCon, windows=2, copy_paste=True)
    step = step_of(stage, labelled=8, unlabelled=4, size=32)
    numbers = torch.arange(12)[:, None, None, None] / 12
    step.labelled.images.copy_(numbers[:8].expand(8, 1, 32, 32))
    step.labelled.labels.copy_(torch.arange(8)[:, None, None] % CLASSES)  # so a pixel's label can be read off the image
    step.unlabelled.images.copy_(numbers[8:].expand(4, 1, 32, 32))
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    losses = stage.losses(step)
    images, out = student[0]
    assert torch.equal(images, teacher[0][0])
    labels = (images[:8, 0] * 12).round().long() % CLASSES
    torch.testing.assert_close(losses["supervised"], supervised(out.logits[:8], labels))
    foreign = images != numbers
    assert 1 < int(foreign[:8].flatten(1).any(1).sum()) < 8 and not foreign[8:].any()
    assert bool((images[:8] < 8 / 12).all())


def test_a_canvas_is_seen_through_the_window() -> None:
    stage = stage_of(GLCon, windows=2)
    step = replace(step_of(stage, size=48), window=(32, 32), augment=augment.Fitted())
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    assert student[0][0].shape == teacher[0][0].shape == (6, 1, 32, 32)
    assert not torch.equal(student[0][0], teacher[0][0])  # the appearance is the student's alone


def relations(rows: Tensor, bank: Tensor, temperature: float) -> Tensor:
    """Softmax over the bank (R, n, D) of the cosines of rows (B, n, D), index by index."""
    cosines = (F.normalize(rows, dim=-1)[:, None] * bank[None]).sum(-1)  # B R n
    return (cosines / temperature).softmax(1)


def test_losses_are_kl_of_the_teachers_relations_from_the_students() -> None:
    """method 3.3 and 3.4 with the published temperatures; the bank is as it was before this step."""
    stage = stage_of(GLCon, bank=12, windows=2)
    step = step_of(stage)
    for n in range(2):
        stage.losses(following(step, n))
    kept = {"global": stage.slices.rows[:, None].clone(), "local": stage.crops.rows.clone()}
    with torch.no_grad():
        for p in step.teacher.parameters():
            p.add_(0.05 * torch.randn_like(p))
    heads = {"global": ("predictor", "projector"), "local": ("local_predictor", "local")}
    student = {name: calls_of(step.student[predictor]) for name, (predictor, _) in heads.items()}
    teacher = {name: calls_of(step.teacher[head]) for name, (_, head) in heads.items()}
    losses = stage.losses(following(step, 2))
    for name, bank in kept.items():
        u, v = student[name][0][1], teacher[name][0][1]
        if name == "global":
            u, v = u[:, None], v[:, None]
        of_student, of_teacher = relations(u, bank, 0.1), relations(v, bank, 0.01)
        each = torch.where(of_teacher > 0, of_teacher * (of_teacher / of_student).log(), 0).sum(1)
        torch.testing.assert_close(losses[name], each.mean(), rtol=1e-4, atol=1e-5)
