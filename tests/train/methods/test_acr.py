"""ACR: which principle brings which loss, whom it reaches, and that whatever belongs together moves together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.steps import (
    CLASSES,
    STILL,
    WIDTH,
    calls_of,
    following,
    painted,
    stage_of,
    step_of,
    weights_at,
    with_gradient,
    within,
)
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_kernels.ops import NATIVE, OPS, REFERENCE, Kernels, Ops
from mona_train.engine.ema_teacher import average_
from mona_train.methods import acr
from mona_train.methods.acr import ACR
from mona_train.methods.base import Step
from mona_train.networks.unet import UNetOutput

CALM = 1e-4  # a learning rate
SMALL = {"queries": 16, "keys": 32, "ring": 64, "bank": 6, "dim": 32}


def running(step: Step, stage: ACR, count: int) -> tuple[Step, dict[str, Tensor]]:
    """So many steps without learning, so that the banks fill."""
    for _ in range(count):
        losses = stage.losses(step)
        step = following(step)
    return step, losses


@pytest.mark.parametrize(
    ("principles", "named"),
    [
        ((), set()),
        (("tailness",), {"contrast"}),
        (("consistency",), {"equivariance"}),
        (("diversity",), {"neighbours"}),
        (("tailness", "consistency", "diversity"), {"contrast", "equivariance", "neighbours"}),
    ],
)
def test_each_principle_brings_its_loss(principles: tuple[str, ...], named: set[str]) -> None:
    stage = stage_of(ACR, principles=principles, **SMALL)
    _, losses = running(step_of(stage), stage, 3)
    assert set(losses) == {"supervised", "unsupervised"} | named
    assert all(bool(torch.isfinite(loss)) for loss in losses.values())


def test_a_principle_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="tailness, consistency, diversity"):
        ACR.Settings(principles=("taileness",))


@pytest.mark.parametrize(
    ("loss", "reached"),
    [
        ("supervised", {"unet"}),
        ("unsupervised", {"unet"}),
        ("contrast", {"unet", "representation"}),
        ("equivariance", {"unet"}),
        ("neighbours", {"unet", "projector", "predictor"}),
    ],
)
def test_each_loss_reaches_its_own_networks_and_never_a_teacher(loss: str, reached: set[str]) -> None:
    stage = stage_of(ACR, sure=0.0, likely=0.0, **SMALL)  # a fresh teacher is sure of nothing
    step, _ = running(step_of(stage), stage, 2)
    stage.losses(step)[loss].backward()
    assert with_gradient(step.student) == reached
    assert not with_gradient(step.teacher)
    assert all(not p.requires_grad and p.grad is None for p in step.teacher.parameters())


def test_neighbours_reach_the_encoder_and_not_the_decoder() -> None:
    stage = stage_of(ACR, principles=("diversity",), **SMALL)
    step, _ = running(step_of(stage), stage, 2)
    stage.losses(step)["neighbours"].backward()
    unet = step.student["unet"]
    assert all(p.grad is not None and bool(p.grad.any()) for p in unet.encoder[0].parameters() if p.ndim == 4)
    assert all(p.grad is None for p in unet.decoder.parameters())


def test_the_teacher_sees_the_weak_view_first_and_then_what_the_student_sees() -> None:
    stage = stage_of(ACR, **SMALL)
    step = step_of(stage)
    taught, learned = calls_of(step.teacher["unet"]), calls_of(step.student["unet"])
    stage.losses(step)
    assert [len(images) for images, _ in taught] == [3, 6]
    assert [len(images) for images, _ in learned] == [6, 6]  # the second: equivariance
    assert torch.equal(taught[1][0], learned[0][0])  # decision 6
    assert not torch.equal(taught[0][0], learned[0][0][3:])


def test_without_tailness_and_diversity_the_teacher_runs_once() -> None:
    stage = stage_of(ACR, principles=("consistency",), **SMALL)
    step = step_of(stage)
    taught = calls_of(step.teacher["unet"])
    stage.losses(step)
    assert len(taught) == 1


class Oracle(nn.Module):  # type: ignore[misc]
    """Reads the class off a painted slice, whatever its brightness between classes: a network that makes no mistake."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.gain = network, nn.Parameter(torch.tensor(400.0))

    def forward(self, images: Tensor) -> UNetOutput:
        centres = torch.linspace(0, 1, CLASSES)[None, :, None, None]
        return UNetOutput(-self.gain * (images - centres).square(), self.network(images).features)


def painted_step(stage: ACR) -> Step:
    step = step_of(stage)
    assert step.unlabelled is not None
    step.labelled.images.copy_(painted(step.labelled.labels))
    step.unlabelled.images.copy_((step.unlabelled.images * (CLASSES - 1)).round() / (CLASSES - 1))
    step.student["unet"], step.teacher["unet"] = Oracle(step.student["unet"]), Oracle(step.teacher["unet"])
    return step


def test_pseudo_labels_move_with_their_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acr, "STRENGTH", STILL)
    stage = stage_of(ACR, **SMALL)
    for number in range(6):  # some of them with a warp
        step = following(painted_step(stage), number)
        assert step.unlabelled is not None
        step.unlabelled.images.copy_((step.unlabelled.images * (CLASSES - 1)).round() / (CLASSES - 1))
        seen = stage._seen(step)
        images, labels = seen.images[seen.labelled :], seen.labels[seen.labelled :]
        shown = (images[:, 0] * (CLASSES - 1)).round().long()
        sure = within(labels) & within(shown)
        assert sure.float().mean() > 0.5
        assert torch.equal(shown[sure], labels[sure])
        torch.testing.assert_close(seen.images, seen.plain, atol=1e-6, rtol=0)


def test_an_equivariant_network_has_no_equivariance_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pointwise network commutes with every geometry, but for interpolation between its classes at their borders."""
    monkeypatch.setattr(acr, "STRENGTH", STILL)
    stage = stage_of(ACR, principles=("consistency",), likely=0.9, **SMALL)
    pointwise = float(stage.losses(painted_step(stage))["equivariance"].detach())

    moved = acr.equivariance
    monkeypatch.setattr(acr, "equivariance", lambda *a, **k: Flipped(moved(*a, **k)))
    broken = float(stage.losses(painted_step(stage))["equivariance"].detach())
    assert pointwise < 0.15 * broken, (pointwise, broken)


class Flipped:
    """A geometry that moves probabilities another way than images: what the test above must be able to see."""

    def __init__(self, geometry: Any) -> None:
        self.geometry = geometry

    def grid(self, *given: Any) -> Any:
        self._grid = self.geometry.grid(*given)
        return self

    def apply(self, images: Tensor) -> Any:
        return self._grid.apply(images)

    @property
    def points(self) -> Tensor:
        return self._grid.points.flip(2)


def test_the_second_pass_of_the_student_leaves_its_statistics_alone() -> None:
    found = []
    for principles in ((), ("consistency",)):
        stage = stage_of(ACR, principles=principles, **SMALL)
        step = step_of(stage)
        without = {n: b.clone() for n, b in step.student["unet"].named_buffers() if "running" in n}
        stage.losses(step)
        after = {n: b for n, b in step.student["unet"].named_buffers() if "running" in n}
        assert any(not torch.equal(without[n], after[n]) for n in after)
        found.append(after)
    assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])


def test_a_step_is_a_function_of_seed_and_number() -> None:
    stages = [stage_of(ACR, **SMALL) for _ in range(2)]
    first, second = ({n: float(v) for n, v in running(step_of(s), s, 3)[1].items()} for s in stages)
    assert first == second


def test_without_unlabelled_slices_it_says_so() -> None:
    stage = stage_of(ACR, **SMALL)
    with pytest.raises(InputError, match="unlabelled"):
        stage.losses(step_of(stage, unlabelled=0))


def test_labels_move_with_their_warped_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(ACR, labelled="jittered", **SMALL)
    monkeypatch.setattr(acr, "STRENGTH", STILL)
    step = painted_step(stage)
    seen = stage._seen(step)
    images, labels = seen.images[: seen.labelled], seen.labels[: seen.labelled]
    shown = (images[:, 0] * (CLASSES - 1)).round().long()
    sure = within(labels) & within(shown)
    assert torch.equal(shown[sure], labels[sure])
    assert not torch.equal(images, step.labelled.images)


# --- kernels and plain PyTorch


def curves(kernels: Kernels, steps: int) -> list[dict[str, float]]:
    """Losses of so many steps of training: SGD, and the teacher's average.

    likely = 0, hard = 1: every pseudo-label counts, every pixel may be drawn.  With a threshold, rounding takes a pixel
    across it sooner or later, the draws move on by one pixel, and two runs that are both right part.
    """
    stage = ACR(ACR.Settings(likely=0.0, hard=1.0, **SMALL), classes=CLASSES, width=WIDTH, kernels=kernels)
    step = step_of(stage)
    sgd = torch.optim.SGD(step.student.parameters(), lr=CALM)
    found = []
    for n in range(steps):
        torch.manual_seed(n)  # dropout
        losses, weights = stage.losses(step), stage.weights(step)
        sum(weights[name] * loss for name, loss in losses.items()).backward()
        sgd.step()
        sgd.zero_grad()
        average_(step.teacher, step.student, 0.9)
        found.append({name: float(loss.detach()) for name, loss in losses.items()})
        step = following(step)
    return found


def test_kernels_and_plain_pytorch_train_alike() -> None:
    native, plain = curves("native", 20), curves("reference", 20)
    assert {name for losses in native for name in losses} == set(weights_at(stage_of(ACR)))
    for n, (a, b) in enumerate(zip(native, plain, strict=True)):
        assert a == pytest.approx(b, abs=1e-4 if n < 15 else 1e-2), n  # later, rounding turns a pixel's pseudo-label
    assert native != plain  # the two are not one


def test_kernels_give_what_plain_pytorch_gives_at_every_step_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both on the same tensors, thresholds and all: whatever moves two trainings apart, it is not an op."""
    compared = []

    def both(name: str) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            ours, theirs = (getattr(ops, name)(*given, **more) for ops in (NATIVE, REFERENCE))
            parts = zip(*(found if isinstance(found, tuple) else (found,) for found in (ours, theirs)), strict=True)
            for a, b in parts:
                torch.testing.assert_close(a.detach(), b.detach(), rtol=2e-6, atol=1e-6)
            compared.append(name)
            return ours

        return run

    monkeypatch.setitem(OPS, "native", Ops(*map(both, Ops._fields)))
    curves("native", 8)
    assert set(compared) == set(Ops._fields)
