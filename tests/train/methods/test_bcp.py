"""Bidirectional copy-paste: every pixel judged by what it came with, the teacher's largest pieces, two stages."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, stage_of, step_of, with_gradient
from helpers.told import quarter_turn, told, told_step, turned
from torch import Tensor

from mona_infer.errors import InputError
from mona_kernels.ops import largest_pieces as pieces
from mona_train.augment import published
from mona_train.config.presets import preferred_pretraining
from mona_train.methods import acr, bcp
from mona_train.methods.acr import ACR
from mona_train.methods.bcp import BCP, Pasted, Settings
from mona_train.methods.registry import first_stage, method_named, stages_of
from mona_train.methods.supervised import Supervised


def weighted_loss(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    p, y, w = logits.softmax(1), F.one_hot(labels, CLASSES).movedim(-1, 1), weight[:, None].float()
    entropy = -(w * y * p.log()).sum() / w.sum()
    both, squares = (w * p * y).sum((0, 2, 3)), (w * (p**2 + y)).sum((0, 2, 3))
    return entropy + (1 - (2 * both + 1e-5) / (squares + 1e-5)).mean()


def test_each_pixel_is_judged_by_the_label_it_came_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "weak", quarter_turn)
    stage = stage_of(BCP)
    step = told_step(stage, labelled=3, unlabelled=3)
    step.labelled = replace(step.labelled, images=step.labelled.images + 1e-3)  # no intensity is in both kinds
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    losses = stage.losses(step)
    images, out = student[0]
    first, second = [0, 1, 2, 0, 1, 2], [0, 1, 2, 1, 2, 0]
    labelled, unlabelled = turned(step.labelled.images)[first], turned(step.unlabelled.images)[second]
    assert torch.equal(teacher[0][0], turned(step.unlabelled.images))  # before mixing
    known = (images == labelled)[:, 0]
    assert bool(((images == labelled) | (images == unlabelled)).all())  # no jitter: weak views alone
    share = known.float().mean((1, 2))
    assert bool((share[:3] < 0.5).all()) and bool((share[3:] > 0.5).all())  # boxes of 4/9, in both directions
    pseudo = pieces.reference.largest_pieces(told(turned(step.unlabelled.images))[0])[second]
    truth = turned(step.labelled.labels)[first]
    torch.testing.assert_close(losses["supervised"], weighted_loss(out.logits, truth, known))
    torch.testing.assert_close(losses["unsupervised"], weighted_loss(out.logits, pseudo, ~known))
    wrong = weighted_loss(out.logits, pseudo, known)
    assert abs(float(wrong - losses["supervised"])) > 0.03  # the test can tell


def test_it_is_what_fine_tuning_does_without_principles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acr, "STRENGTH", bcp.STRENGTH)
    found = []
    for stage in (stage_of(BCP), stage_of(ACR, mix="bcp", principles=())):
        step = step_of(stage, size=32)
        torch.manual_seed(3)
        found.append(stage.losses(step))
    for name in ("supervised", "unsupervised"):
        assert torch.equal(found[0][name], found[1][name])


def test_the_student_learns_and_the_teacher_does_not() -> None:
    stage = stage_of(BCP)
    step = step_of(stage, size=32)
    step.teacher.requires_grad_(True)
    student = calls_of(step.student["unet"])
    losses = stage.losses(step)
    logits = student[0][1].logits
    logits.retain_grad()
    losses["unsupervised"].backward(retain_graph=True)
    assert with_gradient(step.student) == {"unet"} and not with_gradient(step.teacher)
    taught, logits.grad = logits.grad.any(1), None
    losses["supervised"].backward()
    assert not bool((taught & logits.grad.any(1)).any())  # a pixel has one judge
    assert bool((taught | logits.grad.any(1)).all())


def test_weights_are_those_of_the_public_code() -> None:
    step = step_of(stage_of(BCP), size=16)
    assert stage_of(BCP).weights(step) == {"supervised": 1.0, "unsupervised": 0.5}
    chosen = stage_of(BCP, supervised_scale=0.5, unsupervised_weight=0.1)
    assert chosen.weights(step) == {"supervised": 0.5, "unsupervised": 0.1}
    for wrong in ({"supervised_scale": -1.0}, {"unsupervised_weight": -1.0}):
        with pytest.raises(InputError, match=f"bcp.{next(iter(wrong))}"):
            Settings(**wrong)


def test_pre_training_pastes_labelled_slices_into_each_other() -> None:
    assert method_named("bcp").stages == (Pasted, BCP) and stages_of("bcp", "supervised") == (Supervised, BCP)
    assert Pasted.Settings().copy_paste and Pasted.Settings().scale == Supervised.Settings().scale
    assert not Pasted.unlabelled
    assert first_stage("bcp", "default", preferred_pretraining("cpu")) == "default"  # its own
    found = []
    for stage in (stage_of(Pasted), stage_of(Supervised, copy_paste=True), stage_of(Supervised)):
        step = step_of(stage, unlabelled=0, labelled=6, size=32)
        torch.manual_seed(1)
        found.append(stage.losses(step)["supervised"])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_it_says_what_it_needs() -> None:
    stage = stage_of(BCP)
    with pytest.raises(InputError, match="bcp needs unlabelled slices"):
        stage.losses(replace(step_of(stage, size=32), unlabelled=None))
