"""BYOL: each view's prediction against the teacher's embedding of the other; gradient for the student alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.encoders import encodings_of
from helpers.steps import calls_of, stage_of, step_of, unit, with_gradient
from torch import nn

from mona_train.methods.base import Step
from mona_train.methods.byol import BYOL, HEAD, PREDICTOR, distance
from mona_train.methods.registry import method_named, pretraining


def parted(stage: BYOL) -> Step:
    """A teacher that is not the student."""
    step = step_of(stage, size=32)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in step.teacher.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return step


def test_distance_is_that_of_rows_of_length_1() -> None:
    u, v = unit(4, 5, seed=1), unit(4, 5, seed=2)
    torch.testing.assert_close(distance(3 * u, 2 * v), (u - v).square().sum(1).mean())
    assert float(distance(3 * u, u)) == pytest.approx(0, abs=1e-6) and float(distance(u, -u)) == pytest.approx(4)


def test_each_view_is_compared_with_the_teachers_other_one() -> None:
    stage = stage_of(BYOL)
    views = stage.views(step_of(stage, size=32))
    step = parted(stage)
    predicted, taught = calls_of(step.student[PREDICTOR]), calls_of(step.teacher[HEAD])
    unets = encodings_of(step.student["unet"]), encodings_of(step.teacher["unet"])
    loss = stage.losses(step)["contrast"]
    for seen in unets:
        assert [torch.equal(images, view) for (images, _), view in zip(seen, views[:2], strict=True)] == [True, True]
    torch.testing.assert_close(torch.cat([rows for rows, _ in taught]), torch.cat([rows for _, rows in unets[1]]))
    u, v = ([F.normalize(out, dim=1) for _, out in calls] for calls in (predicted, taught))
    expected = (u[0] - v[1]).square().sum(1).mean() + (u[1] - v[0]).square().sum(1).mean()
    torch.testing.assert_close(loss, expected)
    straight = (u[0] - v[0]).square().sum(1).mean() + (u[1] - v[1]).square().sum(1).mean()
    assert abs(float(straight - expected)) > 1e-4  # the test can tell


def test_the_students_heads_follow_each_other() -> None:
    stage = stage_of(BYOL)
    step = parted(stage)
    head, predictor = calls_of(step.student[HEAD]), calls_of(step.student[PREDICTOR])
    seen = encodings_of(step.student["unet"])
    stage.losses(step)
    for n in range(2):
        torch.testing.assert_close(head[n][0], seen[n][1])
        torch.testing.assert_close(predictor[n][0], head[n][1])
    assert len(head) == len(predictor) == 2


def test_the_gradient_reaches_the_student_alone() -> None:
    stage = stage_of(BYOL)
    step = parted(stage)
    step.teacher.requires_grad_(True)
    views = stage.views(step)
    for view in views[:2]:
        view.requires_grad_()
    stage.contrast(step, views, step.student["unet"](views.first))["contrast"].backward()
    assert all(bool(view.grad.any()) for view in views[:2])
    assert with_gradient(step.student) == {"unet", HEAD, PREDICTOR} and not with_gradient(step.teacher)
    unet = step.student["unet"]
    assert all(p.grad is None for part in (unet.decoder, unet.head) for p in part.parameters())
    u, v = unit(2, 4).requires_grad_(), unit(2, 4, seed=1).requires_grad_()
    distance(u, v).backward()
    assert u.grad is not None and v.grad is None


def test_only_the_student_has_a_predictor_and_heads_have_isds_widths() -> None:
    stage = BYOL(BYOL.Settings(), classes=4)
    with torch.device("meta"):
        networks = stage.networks()
    widths = {name: [m.out_features for m in networks[name] if isinstance(m, nn.Linear)] for name in (HEAD, PREDICTOR)}
    assert widths == {HEAD: [512, 64], PREDICTOR: [512, 64]}
    assert all(isinstance(networks[name][1], nn.BatchNorm1d) for name in widths)
    assert set(parted(stage_of(BYOL)).teacher) == {"unet", HEAD}


def test_running_statistics_are_those_of_the_first_view() -> None:
    kept = []
    for weight in (0.0, 1.0):
        step = step_of(stage := stage_of(BYOL, contrast_weight=weight), size=32)
        torch.manual_seed(1)
        stage.losses(step)
        kept.append([m.running_mean.clone() for m in step.student["unet"].modules() if hasattr(m, "running_mean")])
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


def test_it_is_a_method_and_a_pre_training() -> None:
    stage = stage_of(BYOL, contrast_weight=0.3)
    assert stage.weights(step_of(stage, size=16)) == {"contrast": 0.3}
    assert method_named("byol").stages == (BYOL,) and pretraining()["byol"] is BYOL
