"""MoCo v2: the loss worked out again, a queue of the teacher's rows, gradient for student's encoder and head alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.encoders import encodings_of
from helpers.steps import calls_of, following, stage_of, step_of, with_gradient

from mona_infer.errors import InputError
from mona_train.methods.base import Step
from mona_train.methods.moco import HEAD, MoCo, Settings
from mona_train.methods.registry import method_named, pretraining


def filled(stage: MoCo, count: int = 2) -> Step:
    """A step whose queue is full, with a teacher that is not the student."""
    step = step_of(stage, size=32)
    for n in range(count):
        assert list(stage.losses(following(step, n))) == ["supervised"]  # nothing to compare with yet
    with torch.no_grad():
        for p in step.teacher.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return following(step, count)


def test_the_loss_is_info_nce_with_the_queue_before_this_step() -> None:
    stage = stage_of(MoCo, queue=12)
    step = filled(stage)
    queue = stage.queue.rows.clone()
    student, teacher = calls_of(step.student[HEAD]), calls_of(step.teacher[HEAD])
    losses = stage.losses(step)
    q, k = (F.normalize(calls[0][1], dim=1) for calls in (student, teacher))
    assert len(student) == len(teacher) == 1 and q.shape == (6, 128)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
    torch.testing.assert_close(losses["contrast"], F.cross_entropy(logits, torch.zeros(6, dtype=torch.int64)))
    torch.testing.assert_close(stage.queue.rows[:6], k)  # its oldest rows are gone
    assert torch.equal(stage.queue.rows[6:], queue[6:])


def test_the_student_sees_the_first_view_and_the_teacher_the_second() -> None:
    stage = stage_of(MoCo, queue=6)
    views = stage.views(step_of(stage, size=32))
    step = step_of(stage, size=32)
    student, teacher = encodings_of(step.student["unet"]), encodings_of(step.teacher["unet"])
    heads = [calls_of(part[HEAD]) for part in (step.student, step.teacher)]
    stage.losses(step)
    for seen, view, head in zip((student, teacher), (views.first, views.second), heads, strict=True):
        assert len(seen) == 1 and torch.equal(seen[0][0], view)
        torch.testing.assert_close(head[0][0], seen[0][1])  # the bottleneck, averaged over pixels


def test_the_gradient_reaches_the_students_encoder_and_head_alone() -> None:
    stage = stage_of(MoCo, queue=12)
    step = filled(stage)
    step.teacher.requires_grad_(True)  # even if somebody forgot to freeze it
    stage.losses(step)["contrast"].backward()
    assert with_gradient(step.student) == {"unet", HEAD} and not with_gradient(step.teacher)
    unet = step.student["unet"]
    assert all(p.grad is None for part in (unet.decoder, unet.head) for p in part.parameters())
    assert set(step.teacher) == {"unet", HEAD}


def test_rows_of_the_same_slice_are_no_negatives() -> None:
    stage = stage_of(MoCo, queue=12)
    step = step_of(stage, size=32)
    step.labelled = replace(step.labelled, rows=torch.zeros(3, dtype=torch.int64))
    step.unlabelled = replace(step.unlabelled, rows=torch.zeros(3, dtype=torch.int64))
    for _ in range(2):
        stage.losses(step)
    labelled = stage.queue.tags[:, 0] > 1000
    assert labelled.tolist() == 2 * ([True] * 3 + [False] * 3)
    stage.queue.tags[:] = 0  # all unlabelled slices find only themselves in the queue, labelled ones only others
    student, teacher = calls_of(step.student[HEAD]), calls_of(step.teacher[HEAD])
    queue = stage.queue.rows.clone()
    loss = stage.losses(step)["contrast"]
    q, k = (F.normalize(calls[0][1], dim=1)[:3] for calls in (student, teacher))
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
    torch.testing.assert_close(loss, F.cross_entropy(logits, torch.zeros(3, dtype=torch.int64)) / 2)


def test_settings_are_those_of_the_method_and_reach_the_loss() -> None:
    s = Settings()
    assert (s.queue, s.temperature, s.dim, s.crop) == (1200, 0.2, 128, 0.2)
    found = []
    for temperature in (0.2, 0.7):
        stage = stage_of(MoCo, queue=12, temperature=temperature, dim=16)
        step = filled(stage)
        assert stage.queue.rows.shape == (12, 16)
        found.append(float(stage.losses(step)["contrast"]))
    assert found[0] != found[1]
    for wrong in ({"queue": 0}, {"temperature": 0.0}, {"dim": 0}):
        with pytest.raises(InputError, match=f"moco.{next(iter(wrong))}"):
            Settings(**wrong)


def test_it_is_a_method_and_a_pre_training() -> None:
    assert method_named("moco").stages == (MoCo,) and pretraining()["moco"] is MoCo
