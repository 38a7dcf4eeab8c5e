"""SimCVD: the five losses against plain formulas, what the teacher sees, and that only the student learns."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, seeded, stage_of, step_of, weights_at, with_gradient, without_dropout
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.losses.signed_distance import signed_distance
from mona_train.losses.supervised import supervised
from mona_train.methods import simcvd
from mona_train.methods.simcvd import SimCVD, relations

FEATURES = ("unet", "distance", "distance_projector")


def test_losses_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = stage_of(SimCVD, supervised_scale=0.6, temperature=0.4, sharpness=5.0)
    step = step_of(stage, index=150, labelled=2, unlabelled=3, size=32)
    s, t = ({name: calls_of(networks[name]) for name in FEATURES} for networks in (step.student, step.teacher))
    labels: list[Tensor] = []
    monkeypatch.setattr(simcvd, "supervised", lambda out, given: (labels.append(given), supervised(out, given))[1])
    losses = stage.losses(step)
    out, distances, rows = (s[name][0][1] for name in FEATURES)
    taught, targets, keys = (t[name][0][1] for name in FEATURES)
    assert len(s["unet"]) == len(t["unet"]) == 1 and len(s["unet"][0][0]) == len(t["unet"][0][0]) == 5
    assert distances.shape == (5, CLASSES - 1, 32, 32) and float(distances.abs().max()) <= 1

    torch.testing.assert_close(losses["supervised"], 0.6 * supervised(out.logits[:2], labels[0]))
    found = signed_distance(labels[0], CLASSES)
    torch.testing.assert_close(losses["distance"], (distances[:2] - found).square().mean())
    cosines = F.cosine_similarity(rows[:, None], keys[None], dim=-1) / 0.4
    torch.testing.assert_close(losses["contrast"], -(cosines.diag() - cosines.logsumexp(1)).mean())
    torch.testing.assert_close(losses["distillation"], relations(out.bottleneck, taught.bottleneck))

    def soft(maps: Tensor) -> Tensor:
        powers = torch.cat([torch.ones_like(maps[:, :1]), (-5 * maps).exp()], 1)
        return powers / powers.sum(1, keepdim=True)

    expected = (soft(distances[2:]) - soft(targets[2:])).square().mean()
    torch.testing.assert_close(losses["consistency"], expected)


def test_the_soft_segmentation_has_a_class_inside_its_boundary() -> None:
    stage: Any = stage_of(SimCVD, sharpness=20.0)
    distances = torch.full((1, CLASSES - 1, 1, 2), 1.0)
    distances[0, 1, 0, 0] = -1.0  # the first pixel is inside class 2, the other inside none
    assert stage.soft(distances).argmax(1).flatten().tolist() == [2, 0]


def test_relations_are_a_divergence_of_similarities() -> None:
    a, b = (torch.randn(2, 6, 2, 3, generator=seeded(n)).requires_grad_() for n in (1, 2))
    total = 0.0
    for mine, theirs in zip(a, b, strict=True):
        u, v = mine.flatten(1).T, theirs.flatten(1).T
        for i in range(6):
            p = torch.stack([F.cosine_similarity(v[i], v[j], dim=0) for j in range(6)]).softmax(0)
            q = torch.stack([F.cosine_similarity(u[i], u[j], dim=0) for j in range(6)]).softmax(0)
            total += float((p * (p / q).log()).sum())
    loss = relations(a, b)
    assert float(loss) == pytest.approx(total / 12, rel=1e-4)
    loss.backward()
    assert bool(a.grad.any()) and b.grad is None
    assert float(relations(a, 3 * a)) == pytest.approx(0, abs=1e-6)  # the same directions


def test_only_the_student_learns() -> None:
    stage = stage_of(SimCVD)
    step = step_of(stage, index=150, labelled=2, unlabelled=2, size=32)
    step.teacher.requires_grad_(True)  # even if somebody forgot to freeze it
    reached = {
        "supervised": {"unet"},
        "distance": {"unet", "distance"},
        "contrast": set(FEATURES),
        "distillation": {"unet"},
        "consistency": {"unet", "distance"},
    }
    losses = stage.losses(step)
    assert list(losses) == list(reached)
    for name, loss in losses.items():
        step.student.zero_grad()
        loss.backward(retain_graph=True)
        assert with_gradient(step.student) == reached[name], name
    assert all(p.grad is None for p in step.teacher.parameters())
    assert set(stage.averaged) == set(step.teacher) == set(FEATURES)


def test_two_dropout_masks_and_noise_make_the_views() -> None:
    stage = stage_of(SimCVD, noise=0.02, noise_limit=0.03)
    step = step_of(stage, index=150, size=32)
    s, t = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    noise = t[0][0] - s[0][0]
    assert float(noise.abs().max()) == pytest.approx(0.03, abs=1e-6)
    assert float(noise[noise.abs() < 0.02].std()) == pytest.approx(0.0108, abs=0.001)

    still = stage_of(SimCVD, noise=0.0)
    step = step_of(still, index=150, size=32)
    silent = {m: m.training for m in step.teacher.modules()}
    masks = [m for m in step.teacher.modules() if isinstance(m, torch.nn.Dropout)]
    active: list[bool] = []
    step.teacher["unet"].register_forward_pre_hook(lambda *_: active.extend(m.training for m in masks))
    losses = still.losses(step)
    assert len(active) == len(masks) > 0 and all(active)  # the teacher has a mask of its own
    assert float(losses["distillation"]) > 1e-4  # the same weights and images: only the masks differ
    assert {m: m.training for m in step.teacher.modules()} == silent

    step = step_of(still, index=150, size=32)
    without_dropout(step.student)
    for module in step.teacher.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    losses = still.losses(step)
    assert float(losses["distillation"]) < 1e-6 and float(losses["consistency"]) < 1e-12


def test_a_slice_is_matched_with_itself() -> None:
    """The contrast falls below that of chance, and rises above it when the teacher's slices are in another order."""
    stage: Any = stage_of(SimCVD, noise=0.0, temperature=0.01)
    step = step_of(stage, index=150, size=32)
    without_dropout(step.student)
    right = float(stage.losses(step)["contrast"])
    step = step_of(stage, index=150, size=32)
    without_dropout(step.student)
    step.teacher["distance_projector"].register_forward_hook(lambda _, given, out: out.roll(1, 0))
    assert right < float(stage.losses(step)["contrast"])


def test_weights_and_settings() -> None:
    fixed = {"distance": 0.1, "contrast": 0.5, "distillation": 0.1}
    for index, ramp in ((0, math.exp(-5)), (150, math.exp(-5 * 0.5**2))):
        expected = {**fixed, "consistency": pytest.approx(0.1 * ramp, rel=1e-5)}
        assert weights_at(stage_of(SimCVD), index) == expected
    chosen = {"distance_weight": 1.0, "contrast_weight": 2.0, "distillation_weight": 3.0, "consistency_weight": 4.0}
    found = weights_at(stage_of(SimCVD, **chosen), 299)
    assert found == {"distance": 1, "contrast": 2, "distillation": 3, "consistency": pytest.approx(4, rel=1e-3)}
    with pytest.raises(InputError, match=r"simcvd\.temperature must be 0\.001 or greater"):
        stage_of(SimCVD, temperature=0.0)


def test_without_unlabelled_slices_there_is_no_consistency() -> None:
    stage = stage_of(SimCVD)
    losses = stage.losses(step_of(stage, index=150, unlabelled=0, size=32))
    assert list(losses) == ["supervised", "distance", "contrast", "distillation"]
