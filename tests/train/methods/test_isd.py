"""ISD is GLCon without windows: the same losses, the same bank, and heads that fine-tuning goes on with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.encoders import encodings_of
from helpers.steps import calls_of, following, stage_of, step_of, with_gradient
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.augment import GLCON, PUBLISHED
from mona_train.methods.base import Stage, Step
from mona_train.methods.glcon import GLCon
from mona_train.methods.isd import ISD, Settings
from mona_train.methods.registry import method_named, pretraining


def filled(stage: Stage, count: int = 2) -> Step:
    step = step_of(stage, size=32)
    for n in range(count):
        torch.manual_seed(n)
        assert list(stage.losses(following(step, n))) == ["supervised"]
    torch.manual_seed(9)
    with torch.no_grad():
        for name in ("unet", "projector"):
            for p in step.teacher[name].parameters():
                p.add_(0.05 * torch.randn_like(p))
    return following(step, count)


@pytest.mark.parametrize("settings", [{}, {"copy_paste": True, "norm": "ln", "student_temperature": 0.2}])
def test_it_is_glcon_without_windows(settings: dict[str, Any]) -> None:
    found = []
    for stage in (stage_of(ISD, bank=12, **settings), stage_of(GLCon, bank=12, local_weight=0.0, **settings)):
        step = filled(stage)
        torch.manual_seed(5)
        losses = stage.losses(step)
        found.append([*losses.values(), stage.slices.rows])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_loss_is_kl_of_the_teachers_relations_from_the_students() -> None:
    stage = stage_of(ISD, bank=12)
    step = filled(stage)
    bank = stage.slices.rows.clone()
    student, teacher = calls_of(step.student["predictor"]), calls_of(step.teacher["projector"])
    loss = stage.losses(step)["contrast"]

    def relations(rows: Tensor, temperature: float) -> Tensor:
        return (F.normalize(rows, dim=1) @ bank.T / temperature).log_softmax(1)

    s, t = relations(student[0][1], 0.1), relations(teacher[0][1], 0.01)
    torch.testing.assert_close(loss, (t.exp() * (t - s)).sum(1).mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stage.slices.rows[:6], F.normalize(teacher[0][1], dim=1))


def test_the_students_view_is_strong_and_the_teachers_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    strengths: list[Any] = []

    def appearance(_: Any, images: Tensor, strength: Any) -> Tensor:
        strengths.append(strength)
        return images / 2

    monkeypatch.setattr(type(PUBLISHED), "appearance", lambda self, *given: appearance(*given))
    stage = stage_of(ISD)
    step = step_of(stage, size=32)
    student, teacher = encodings_of(step.student["unet"]), encodings_of(step.teacher["unet"])
    stage.losses(step)
    assert torch.equal(student[0][0], teacher[0][0] / 2) and strengths == [GLCON]


def test_the_gradient_reaches_the_students_encoder_and_heads_alone() -> None:
    stage = stage_of(ISD, bank=12)
    step = filled(stage)
    step.teacher.requires_grad_(True)
    stage.losses(step)["contrast"].backward()
    assert with_gradient(step.student) == {"unet", "projector", "predictor"} and not with_gradient(step.teacher)
    unet = step.student["unet"]
    assert all(p.grad is None for part in (unet.decoder, unet.head) for p in part.parameters())
    assert set(step.teacher) == {"unet", "projector"}


def test_settings_are_those_of_glcon() -> None:
    mine, theirs = Settings(), GLCon.Settings()
    for name in ("bank", "student_temperature", "teacher_temperature", "supervised_scale", "norm", "copy_paste"):
        assert getattr(mine, name) == getattr(theirs, name)
    assert mine.contrast_weight == theirs.global_weight
    for wrong in ({"bank": 0}, {"student_temperature": 0.0}, {"contrast_weight": -1.0}):
        with pytest.raises(InputError, match=f"isd.{next(iter(wrong))}"):
            Settings(**wrong)
    assert method_named("isd").stages == (ISD,) and pretraining()["isd"] is ISD
