"""ACR with bidirectional copy-paste: labelled and unlabelled pixels in every image, each judged by its own label.

As in test_acr_wiring, the teacher's answers can be read off the images it sees.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, calls_of, following, seeded, stage_of, step_of, weights_at, with_gradient
from helpers.told import SIZE, by_hand, told, told_step, turned
from torch import Tensor

from mona_kernels.ops.largest_pieces.reference import largest_pieces
from mona_train.augment import Fitted, published
from mona_train.data.stream import LabelledBatch
from mona_train.losses.unsupervised import IGNORE
from mona_train.methods.acr import ACR
from mona_train.methods.acr_batch import LABELLED_TAGS
from mona_train.methods.base import Losses, Step

SMALL: dict[str, Any] = {"queries": 16, "keys": 32, "ring": 64, "bank": 12, "dim": 32, "mix": "bcp"}
LABELLED, UNLABELLED, MIXED = 2, 3, 6
FIRST, SECOND = [0, 1, 0, 0, 1, 0], [0, 1, 2, 1, 2, 0]  # which labelled and which unlabelled slice each mixture shows


class Watched(NamedTuple):
    step: Step
    losses: Losses
    student: list[tuple[Tensor, Any]]
    teacher: list[tuple[Tensor, Any]]

    @property
    def known(self) -> Tensor:
        """Where the student's images show labelled slices: the pixels are compared, no code that mixed them is asked.

        Slices of 64 random levels agree by chance here and there; a box is what remains when those are voted down.
        """
        images = self.student[0][0][:, 0]
        own = images == turned(self.step.labelled.images)[FIRST, 0]
        other = images == turned(self.step.unlabelled.images)[SECOND, 0]
        assert bool((own | other).all())
        votes = F.avg_pool2d((own.float() - other.float())[:, None], 3, 1, 1, count_include_pad=False)[:, 0]
        return torch.where(own & other, votes > 0, own)

    @property
    def pseudo(self) -> Tensor:
        return largest_pieces(told(turned(self.step.unlabelled.images))[0])


def bcp_step(stage: ACR) -> Step:
    step = told_step(stage, LABELLED, UNLABELLED)
    return replace(step, labelled=LabelledBatch(step.labelled.images, step.labelled.labels, torch.arange(LABELLED)))


def watch(stage: ACR, step: Step | None = None) -> Watched:
    step = step or bcp_step(stage)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    return Watched(step, stage.losses(step), student, teacher)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    by_hand(monkeypatch)
    return monkeypatch


# --- what the networks see


def test_every_image_shows_a_labelled_and_an_unlabelled_slice(hand: pytest.MonkeyPatch) -> None:
    seen = watch(stage_of(ACR, principles=(), **SMALL))
    side = round(2 / 3 * SIZE)
    areas = seen.known.sum((1, 2))
    torch.testing.assert_close(areas[:3], torch.full((3,), side**2), atol=20, rtol=0)
    torch.testing.assert_close(areas[3:], torch.full((3,), SIZE**2 - side**2), atol=20, rtol=0)
    assert seen.student[0][0].shape == (MIXED, 1, SIZE, SIZE)


def test_the_teacher_sees_the_unlabelled_slices_unmixed_and_nothing_else(hand: pytest.MonkeyPatch) -> None:
    seen = watch(stage_of(ACR, principles=(), **SMALL))
    assert len(seen.teacher) == 1 and len(seen.student) == 1
    assert torch.equal(seen.teacher[0][0], turned(seen.step.unlabelled.images))


def test_the_mixture_gets_its_appearance_as_a_whole(hand: pytest.MonkeyPatch) -> None:
    given: list[Tensor] = []

    def jitter(_: Any, images: Tensor, strength: Any) -> Tensor:
        given.append(images)
        return images / 2

    hand.setattr(published, "jitter", jitter)
    seen = watch(stage_of(ACR, principles=(), **SMALL))
    assert len(given) == 1 and torch.equal(seen.student[0][0], given[0] / 2) and len(given[0]) == MIXED


# --- pseudo-labels of the plain slice


def test_the_teacher_is_asked_about_the_plain_slice_and_its_answer_moves_with_it(hand: pytest.MonkeyPatch) -> None:
    stage = stage_of(ACR, principles=(), pseudo="plain", **SMALL)
    seen, batch = watch(stage), stage._seen(bcp_step(stage))
    images = seen.step.unlabelled.images
    assert torch.equal(seen.teacher[0][0], images)  # not turned
    pseudo = turned(largest_pieces(told(images)[0]))[SECOND]
    assert torch.equal(batch.labels[~batch.known], pseudo[~batch.known])
    sure = turned(told(images)[1])[SECOND]
    torch.testing.assert_close(batch.confidence[~batch.known], sure[~batch.known])


def test_what_comes_from_beyond_the_plain_window_has_no_pseudo_label() -> None:
    stage = stage_of(ACR, principles=(), pseudo="plain", **SMALL)
    step = replace(bcp_step(stage), window=(16, 16), augment=Fitted(shift=1.0))
    asked = calls_of(step.teacher["unet"])
    batch = stage._seen(step, target=True)
    assert torch.equal(asked[0][0], step.unlabelled.images[..., 8:24, 8:24])
    beyond = batch.labels == IGNORE
    assert 0.05 < float(beyond.float().mean()) < 0.5 and not bool((beyond & batch.known).any())
    assert float(batch.confidence[beyond].max()) < 1  # between a pixel inside and one beyond, at most
    logits = torch.randn(MIXED, CLASSES, 16, 16, generator=seeded())
    losses = stage._fit(logits, batch)
    taught = ~batch.known & ~beyond
    torch.testing.assert_close(losses["unsupervised"], weighted_loss(logits, batch.labels.clamp(min=0), taught))
    torch.testing.assert_close(losses["supervised"], weighted_loss(logits, batch.labels.clamp(min=0), batch.known))


# --- losses


def weighted_loss(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    p, y, w = logits.softmax(1), F.one_hot(labels, CLASSES).movedim(-1, 1), weight[:, None].float()
    entropy = -(w * y * p.log()).sum() / w.sum()
    both, squares = (w * p * y).sum((0, 2, 3)), (w * (p**2 + y)).sum((0, 2, 3))
    return entropy + (1 - (2 * both + 1e-5) / (squares + 1e-5)).mean()


@pytest.mark.parametrize("confident", [0.0, 0.8])
def test_labelled_pixels_are_judged_by_labels_and_the_others_by_the_teacher(
    hand: pytest.MonkeyPatch, confident: float
) -> None:
    stage = stage_of(ACR, principles=(), confident=confident, **SMALL)
    batch = stage._seen(bcp_step(stage))
    seen = watch(stage)
    logits = seen.student[0][1].logits
    truth = turned(seen.step.labelled.labels)[FIRST]
    pseudo, confidence = seen.pseudo[SECOND], told(turned(seen.step.unlabelled.images))[1][SECOND]
    known = batch.known
    assert float((known == seen.known).float().mean()) > 0.99  # read off the pixels: a few agree by chance
    torch.testing.assert_close(seen.losses["supervised"], weighted_loss(logits, truth, known))
    taught = ~known & (confidence >= confident)
    assert 0.05 < float(taught.float().mean()) < (0.6 if confident == 0 else 0.3)
    torch.testing.assert_close(seen.losses["unsupervised"], weighted_loss(logits, pseudo, taught))
    assert torch.equal(batch.labels, torch.where(known, truth, pseudo))
    torch.testing.assert_close(batch.confidence, torch.where(known, 1.0, confidence))


def test_kernels_and_plain_pytorch_keep_the_same_pieces() -> None:
    found = []
    for kernels in ("native", "reference"):
        stage = ACR(ACR.Settings(principles=(), **SMALL), classes=CLASSES, width=0.25, kernels=kernels)
        found.append(stage._seen(bcp_step(stage)).labels)
    assert torch.equal(*found)


def run(stage: ACR, count: int = 2, **changes: Any) -> tuple[Step, Losses]:
    step = replace(step_of(stage, size=32), **changes)
    for _ in range(count):
        losses = stage.losses(step)
        step = following(step)
    return step, losses


@pytest.mark.parametrize("mix", ["bcp", "cutmix"])
@pytest.mark.parametrize("consistency", ["published", "fixed"])
@pytest.mark.parametrize("fitted", [True, False])
def test_every_principle_works_on_mixtures(mix: str, consistency: str, fitted: bool) -> None:
    settings = {**SMALL, "mix": mix, "bank": 6}
    stage = stage_of(ACR, sure=0.0, likely=0.0, consistency=consistency, repel=fitted, contrast_ramp=0.5, **settings)
    augment = {"augment": Fitted(), "window": (16, 16)} if fitted else {}
    step, losses = run(stage, 3, index=290, number=290, **augment)
    assert set(losses) == {"supervised", "unsupervised", "contrast", "equivariance", "neighbours"}
    assert all(bool(torch.isfinite(loss)) for loss in losses.values())
    sum(losses.values()).backward()
    assert with_gradient(step.student) == {"unet", "projector", "predictor", "representation"}
    assert not with_gradient(step.teacher)


def test_mixtures_are_tagged_with_both_slices(hand: pytest.MonkeyPatch) -> None:
    stage = stage_of(ACR, principles=("diversity",), **SMALL)
    for _ in range(2):
        watch(stage)
    assert stage.bank.full
    assert stage.bank.tags[:MIXED].tolist() == [[LABELLED_TAGS + a, b] for a, b in zip(FIRST, SECOND, strict=True)]
    unknown = replace(bcp_step(stage), labelled=LabelledBatch(*_images_and_labels(stage)))
    stage.losses(unknown)
    assert stage.bank.tags[:MIXED, 0].tolist() == [-1] * MIXED


def _images_and_labels(stage: ACR) -> tuple[Tensor, Tensor]:
    batch = bcp_step(stage).labelled
    return batch.images, batch.labels


@pytest.mark.parametrize("mix", ["bcp", "cutmix"])
def test_a_fixed_target_is_the_labels_and_the_teachers_answer(hand: pytest.MonkeyPatch, mix: str) -> None:
    """T is a quarter turn: the loss is worked out from the batch that the student saw."""
    stage = stage_of(ACR, principles=("consistency",), consistency="fixed", **{**SMALL, "mix": mix})
    step = replace(bcp_step(stage), index=100)  # of 300: the ramp has ended
    batch = stage._seen(replace(step, generator=seeded()), target=True)
    seen = watch(stage, replace(step, generator=seeded()))
    assert torch.equal(batch.images, seen.student[0][0])
    label, confidence = told(batch.images)
    spread = (1 - confidence) / (CLASSES - 1)
    own = F.one_hot(label, CLASSES).movedim(-1, 1)
    taught = spread[:, None] + own * (confidence - spread)[:, None]
    target = torch.where(batch.known[:, None], F.one_hot(batch.labels, CLASSES).movedim(-1, 1).float(), taught)
    torch.testing.assert_close(batch.target, target)
    p, trusted = turned(target), turned(batch.known | (confidence >= 0.7)).float()
    assert 0.3 < float(trusted.mean()) < 0.95 and bool((turned(batch.labels)[trusted > 0] == 0).any())
    divergence = (torch.xlogy(p, p) - p * seen.student[1][1].logits.log_softmax(1)).sum(1)
    expected = (trusted * divergence).sum() / trusted.sum()
    torch.testing.assert_close(seen.losses["equivariance"], expected, rtol=1e-4, atol=1e-5)


# --- when, and at what cost


def test_before_their_start_the_principles_cost_nothing() -> None:
    stage = stage_of(ACR, start=0.5, **SMALL)
    for index, expected in ((149, (1, 1)), (150, (2, 2))):
        step = step_of(stage, index=index, steps=300, size=32)
        student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
        heads = [calls_of(step.student[name]) for name in ("projector", "predictor", "representation")]
        losses = stage.losses(step)
        assert (len(student), len(teacher)) == expected
        assert ("contrast" in losses) == (index == 150) == any(heads)


@pytest.mark.parametrize("mix", ["bcp", "cutmix"])
def test_a_principle_of_weight_0_costs_nothing(mix: str) -> None:
    settings = {**SMALL, "mix": mix}
    weights = {"contrast_weight": 0.0, "equivariance_weight": 0.0, "neighbours_weight": 0.0}
    passes = {}
    for name in (*weights, "all"):
        off = weights if name == "all" else {name: 0.0}
        stage = stage_of(ACR, **off, **settings)
        step = step_of(stage, size=32)
        student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
        heads = [calls_of(step.student[head]) for head in ("representation", "projector")]
        stage.losses(step)
        passes[name] = (len(student), len(teacher), *(len(calls) for calls in heads))
    assert passes == {
        "contrast_weight": (2, 2, 0, 1),
        "equivariance_weight": (1, 2, 1, 1),
        "neighbours_weight": (2, 2, 1, 0),
        "all": (1, 1, 0, 0),
    }


def test_contrast_and_fixed_consistency_rise_to_their_weight() -> None:
    def weights(index: int, **settings: Any) -> dict[str, float]:
        return weights_at(stage_of(ACR, start=0.5, contrast_weight=0.4, **settings, **SMALL), index)

    for index, expected in ((0, 0.0), (150, 0.0), (165, 0.2), (225, 1.0), (299, 1.0)):
        assert weights(index, contrast_ramp=0.5)["contrast"] == pytest.approx(0.4 * expected)
    assert weights(150)["contrast"] == 0.4  # without a ramp
    for index, expected in ((150, 0.0), (165, 0.5), (180, 1.0), (299, 1.0)):
        assert weights(index, consistency="fixed")["equivariance"] == pytest.approx(expected)
    assert weights(150)["equivariance"] == 1.0  # the published one has no ramp
