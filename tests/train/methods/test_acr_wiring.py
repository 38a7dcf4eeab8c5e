"""ACR's wiring: each loss is worked out again from what went into the networks and what came out (method 4).

The teacher's answers can be read off the images it sees (tests/told.py), so nothing here asks the code for labels,
confidences or masks.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, stage_of, weights_at
from helpers.told import SIZE, by_hand, quarter_turn, told, told_step, turned
from torch import Tensor, nn

from mona_kernels.ops import NATIVE, REFERENCE
from mona_train import augment
from mona_train.augment import published
from mona_train.engine.distributed import SingleProcess
from mona_train.methods import acr
from mona_train.methods.acr import ACR
from mona_train.methods.base import Losses, Step

SMALL = {"queries": 16, "keys": 32, "ring": 64, "bank": 6, "dim": 32}
LABELLED = 2  # slices in a batch, and the first of them


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(monkeypatch)


class Watched(NamedTuple):
    """A step's losses, and every call of the U-Nets: the student's on the batch and on T of it, the teacher's on the
    weak unlabelled view and on the batch."""

    step: Step
    losses: Losses
    student: list[tuple[Tensor, Any]]
    teacher: list[tuple[Tensor, Any]]

    @property
    def labels(self) -> Tensor:
        """Of the batch: the turned labels, and what the teacher says of the pixels that the student saw."""
        return torch.cat([turned(self.step.labelled.labels), told(self.student[0][0][LABELLED:])[0]])

    @property
    def confidence(self) -> Tensor:
        unlabelled = told(self.student[0][0][LABELLED:])[1]
        return torch.cat([torch.ones(LABELLED, SIZE, SIZE), unlabelled])


def watch(stage: ACR, step: Step | None = None) -> Watched:
    step = step or told_step(stage)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    return Watched(step, stage.losses(step), student, teacher)


# --- settings


def test_settings_are_those_of_the_method() -> None:
    s = ACR.Settings()
    assert (s.sure, s.likely, s.hard, s.temperature) == (0.97, 0.7, 0.97, 0.5)
    assert (s.queries, s.keys, s.ring, s.dim, s.bank, s.neighbours) == (256, 512, 2048, 512, 36, 5)
    assert (s.weigh, s.labelled, s.mode, s.lr) == ("image", "weak", "shared", None)
    assert ACR.nesterov and ACR.averaged == ("unet", "projector", "representation")  # a teacher has no predictor


def test_the_weights_are_those_of_the_method() -> None:
    assert weights_at(stage_of(ACR)) == {
        "supervised": 1.0, "contrast": 0.01, "equivariance": 1.0, "unsupervised": 1.0, "neighbours": 1.0
    }  # fmt: skip


def test_every_weight_goes_to_its_own_loss() -> None:
    for name in ("supervised", "contrast", "equivariance", "unsupervised", "neighbours"):
        setting = "supervised_scale" if name == "supervised" else f"{name}_weight"
        weights = weights_at(stage_of(ACR, **{setting: 7.0}))
        assert [other for other, weight in weights.items() if weight == 7.0] == [name]


def test_settings_reach_the_contrast_and_the_bank() -> None:
    given = {"queries": 3, "keys": 5, "ring": 7, "likely": 0.6, "hard": 0.8, "temperature": 0.4, "dim": 11, "bank": 13}
    stage = stage_of(ACR, mode="exact", **given)
    t = stage.tailness
    assert (t.queries, t.keys, t.likely, t.hard, t.temperature, t.mode) == (3, 5, 0.6, 0.8, 0.4, "exact")
    assert t.rings.shape == (CLASSES, 7, 11) and len(stage.bank) == 13
    assert (t.fill, t.graph_temperature) == (256, 0.5)


def test_kernels_are_the_ones_asked_for() -> None:
    for kernels, ops in (("native", NATIVE), ("reference", REFERENCE)):
        stage = ACR(ACR.Settings(**SMALL), classes=CLASSES, kernels=kernels)
        assert stage.ops is ops and stage.tailness.ops is ops


def test_fine_tuning_has_a_rate_of_its_own_where_one_is_given() -> None:
    for lr, expected in ((None, {}), (3e-4, {"lr": 3e-4})):
        (turn,) = stage_of(ACR, lr=lr).turns()
        assert turn.optimiser == expected and turn.networks == ()


# --- what the networks see


def test_the_student_sees_weak_labelled_slices_and_halves_of_unlabelled_ones() -> None:
    seen = watch(stage_of(ACR, **SMALL))
    images, unlabelled = seen.student[0][0], turned(seen.step.unlabelled.images)
    assert torch.equal(images[:2], turned(seen.step.labelled.images))
    for n in range(3):
        own, partner = images[2 + n] == unlabelled[n], images[2 + n] == unlabelled[(n + 1) % 3]
        assert bool((own | partner).all())
        assert 0.45 < float(own.float().mean()) < 0.7 and 0.45 < float(partner.float().mean()) < 0.7  # some agree


def test_the_teacher_labels_the_weak_view_before_it_is_mixed() -> None:
    seen = watch(stage_of(ACR, **SMALL))
    assert torch.equal(seen.teacher[0][0], turned(seen.step.unlabelled.images))
    assert torch.equal(seen.teacher[1][0], seen.student[0][0])  # decision 6


def dimmed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In place of jitter: the first call halves its images, the second quarters them, and so on."""
    strengths: list[Any] = []

    def jitter(_: Any, images: Tensor, strength: Any) -> Tensor:
        strengths.append(strength)
        return images * 0.5 ** len(strengths)

    monkeypatch.setattr(published, "jitter", jitter)
    return strengths


def test_only_unlabelled_slices_are_jittered_and_afresh_in_the_equivariance_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strengths = dimmed(monkeypatch)
    seen = watch(stage_of(ACR, **SMALL))
    (first, _), (second, _) = seen.student
    labelled = turned(seen.step.labelled.images)
    assert torch.equal(first[:2], labelled)
    torch.testing.assert_close(second[:2], turned(labelled))
    assert bool(first[2:].max() < 0.5)
    torch.testing.assert_close(second[2:], turned(first[2:]) / 2)  # a quarter of what the first pass halved
    assert len(strengths) == 2


def test_labelled_slices_may_be_warped_and_jittered_and_then_keep_their_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    dimmed(monkeypatch)
    monkeypatch.setattr(published, "diffeo", quarter_turn)  # a warp that shows: another quarter turn
    seen = watch(stage_of(ACR, labelled="jittered", **SMALL))
    (first, out), (second, _) = seen.student
    torch.testing.assert_close(first[:2], turned(turned(seen.step.labelled.images)) / 2)
    torch.testing.assert_close(second[:2], turned(first[:2]))
    moved = turned(turned(seen.step.labelled.labels))
    torch.testing.assert_close(seen.losses["supervised"], cross_entropy_and_dice(out.logits[:2], moved))
    torch.testing.assert_close(second[2:], turned(first[2:]) / 2)


def test_the_jitter_is_that_of_fine_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acr, "STRENGTH", augment.ACR)
    strengths = dimmed(monkeypatch)
    watch(stage_of(ACR, **SMALL))
    assert all(strength is augment.ACR for strength in strengths)


# --- what each loss is


def cross_entropy_and_dice(logits: Tensor, labels: Tensor) -> Tensor:
    """method 3.5."""
    p, y = logits.softmax(1), F.one_hot(labels, CLASSES).permute(0, 3, 1, 2).float()
    entropy = -(y * p.log()).sum(1).mean()
    overlap, squares = (p * y).sum((0, 2, 3)), (p**2).sum((0, 2, 3)) + (y**2).sum((0, 2, 3))
    return entropy + (1 - (2 * overlap + 1e-5) / (squares + 1e-5)).mean()


def test_the_supervised_loss_is_of_the_labelled_slices_and_their_turned_labels() -> None:
    seen = watch(stage_of(ACR, **SMALL))
    expected = cross_entropy_and_dice(seen.student[0][1].logits[:2], seen.labels[:2])
    torch.testing.assert_close(seen.losses["supervised"], expected)


@pytest.mark.parametrize(("weigh", "sure"), [("image", 0.97), ("pixel", 0.97), ("image", 0.5)])
def test_pseudo_labels_count_from_the_threshold_called_sure(weigh: str, sure: float) -> None:
    """method 4.3: of each unlabelled image the share of pixels with a confidence of at least 0.97, times the
    cross-entropy of all its pixels; or each sure pixel alone."""
    seen = watch(stage_of(ACR, weigh=weigh, **({"sure": sure} if sure != 0.97 else {}), **SMALL))
    chosen = (seen.confidence[2:] >= sure).float()
    assert len({round(float(share), 3) for share in chosen.mean((1, 2))}) == 3  # no two images are equally sure
    log_p = seen.student[0][1].logits[2:].log_softmax(1)
    entropy = -log_p.gather(1, seen.labels[2:, None])[:, 0]
    expected = chosen.mean((1, 2), keepdim=True) * entropy if weigh == "image" else chosen * entropy
    torch.testing.assert_close(seen.losses["unsupervised"], expected.mean())


@pytest.mark.parametrize("likely", [0.7, 0.9])
def test_equivariance_counts_foreground_that_the_teacher_finds_likely(likely: float) -> None:
    """method 4.4: KL(P||Q) + KL(Q||P) of P = T(F(x)), without gradient, and Q = F(T(x)); for each image the mean over
    its foreground pixels, labelled or with a confidence of at least 0.7, then the mean over images."""
    seen = watch(stage_of(ACR, **({"likely": likely} if likely != 0.7 else {}), **SMALL))
    (first, out), (second, moved) = seen.student
    torch.testing.assert_close(second, turned(first))  # without jitter T is all that differs
    counted = turned((seen.labels > 0) & (seen.confidence >= likely)).float()
    assert 0.05 < float(counted.mean()) < 0.8
    p, q = turned(out.logits.softmax(1)).detach(), moved.logits.softmax(1)
    both = (p * (p / q).log()).sum(1) + (q * (q / p).log()).sum(1)
    expected = ((counted * both).sum((1, 2)) / counted.sum((1, 2))).mean()
    torch.testing.assert_close(seen.losses["equivariance"], expected)

    parameters = list(seen.step.student["unet"].parameters())
    wanted = torch.autograd.grad(expected, parameters, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(seen.losses["equivariance"], parameters), wanted)


def test_the_second_pass_leaves_the_networks_memory_as_it_found_it() -> None:
    """decision 4; and the next step's first pass remembers its statistics again."""
    stage = stage_of(ACR, principles=("consistency",), **SMALL)
    seen = watch(stage)
    norms = [m for m in seen.step.student["unet"].modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms and all(m.momentum == 0.1 for m in norms)
    before = norms[0].running_mean.clone()
    stage.losses(seen.step)
    assert not torch.equal(norms[0].running_mean, before)


def test_the_contrast_gets_the_students_queries_and_the_teachers_keys() -> None:
    stage = stage_of(ACR, **SMALL)
    step = replace(told_step(stage), seed=7, number=12, index=3, processes=SingleProcess())
    given: list[Any] = []
    stage.tailness.register_forward_pre_hook(lambda _, args, more: given.extend([args, more]), with_kwargs=True)
    seen = watch(stage, step)
    (features, probabilities, keys, labels, confidence, student, teacher), more = given
    out, taught = seen.student[0][1], seen.teacher[1][1]
    assert all(a is b for a, b in zip(features, out.features, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(keys, taught.features, strict=True))
    assert not any(f.requires_grad for f in keys)
    torch.testing.assert_close(probabilities, out.logits.softmax(1))
    assert torch.equal(labels, seen.labels)
    torch.testing.assert_close(confidence, seen.confidence)
    assert student is step.student["representation"] and teacher is step.teacher["representation"]
    assert more["seed"] == 7 and more["step"] == 12 and more["processes"] is step.processes


# --- which views student and teacher see: the paper's four pairs


@pytest.mark.parametrize("mix", ["cutmix", "bcp"])
@pytest.mark.parametrize(
    ("student", "teacher"), [("weak", "weak"), ("weak", "strong"), ("strong", "weak"), ("strong", "strong")]
)
def test_student_and_teacher_see_the_views_that_were_asked_for(
    student: str, teacher: str, mix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(published, "jitter", lambda _, images, strength: images if strength is None else 2 * images)
    stage = stage_of(ACR, principles=(), mix=mix, student=student, teacher=teacher)
    step = told_step(stage)
    step.teacher["unet"] = copy.deepcopy(step.student["unet"])
    mine, theirs = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    unlabelled = mine[0][0] if mix == "bcp" else mine[0][0][len(step.labelled.images) :]
    shown, weak = theirs[0][0], turned(step.unlabelled.images)
    assert len(theirs) == 1
    assert float(unlabelled.max()) == pytest.approx((2 if student == "strong" else 1) * float(weak.max()), rel=0.02)
    assert float(shown.max()) == pytest.approx((2 if teacher == "strong" else 1) * float(weak.max()), rel=0.02)
    if mix == "cutmix" and student == "weak":  # not mixed either
        assert torch.equal(unlabelled, weak)
    if mix == "cutmix" and teacher == "strong":  # it answers for what the student is shown
        torch.testing.assert_close(shown / 2, unlabelled / (2 if student == "strong" else 1))
