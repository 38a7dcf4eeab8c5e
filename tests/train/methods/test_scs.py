"""SCS: SimCLR without test patients, then organs' pixels against all others, on few pixels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.small_runs import small_config
from helpers.steps import CLASSES, calls_of, following, seeded, stage_of, step_of, with_gradient
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_train.augment import Fitted, Geometry, View
from mona_train.config.schema import Batch
from mona_train.engine.trainer import spans
from mona_train.losses.nt_xent import nt_xent
from mona_train.methods import scs
from mona_train.methods.base import Step
from mona_train.methods.registry import method_named
from mona_train.methods.scs import SCSFinetune, SCSGlobal, SCSLocal
from mona_train.methods.supervised import Supervised


def test_stage_1_is_simclr() -> None:
    stage = stage_of(SCSGlobal)
    step = step_of(stage, labelled=1, unlabelled=5, size=32)
    head = calls_of(step.student["scs_global"])
    loss = stage.losses(step)["global"]
    rows = head[0][1]
    assert rows.shape == (10, 256)
    slices = torch.arange(5).repeat(2)
    torch.testing.assert_close(loss, nt_xent(rows, slices[:, None] == slices, temperature=0.5))
    loss.backward()
    assert with_gradient(step.student) == {"unet", "scs_global"}
    trained = {name.split(".")[0] for name, p in step.student["unet"].named_parameters() if p.grad is not None}
    assert trained == {"encoder"}


def test_a_slice_that_is_dealt_twice_is_its_own_positive() -> None:
    stage = stage_of(SCSGlobal)
    step = step_of(stage, labelled=1, unlabelled=4, size=32)
    step = replace(step, unlabelled=replace(step.unlabelled, rows=torch.tensor([7, 3, 7, 5])))
    head = calls_of(step.student["scs_global"])
    loss = stage.losses(step)["global"]
    slices = torch.tensor([7, 3, 7, 5, 7, 3, 7, 5])
    torch.testing.assert_close(loss, nt_xent(head[0][1], slices[:, None] == slices, temperature=0.5))


def test_both_views_of_stage_1_are_different() -> None:
    stage = stage_of(SCSGlobal)
    step = replace(step_of(stage, labelled=1, unlabelled=4, size=48), window=(32, 32))
    for augment in (step.augment, Fitted()):
        first = nn.Sequential(*step.student["unet"].encoder[:1])
        seen = calls_of(first[0])
        stage.losses(replace(following(step), augment=augment))
        images = seen[0][0]
        assert images.shape == (8, 1, 32, 32) and not torch.isclose(images[:4], images[4:]).flatten(1).all(1).any()


def as_they_are(step: Step, images: Tensor, labels: Tensor) -> View:
    return Geometry.identity(len(images)).apply(images, labels)


def local_step(monkeypatch: pytest.MonkeyPatch, stage: SCSLocal, **other: int) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of stage 2, and what its loss function was given."""
    given: list[tuple[Tensor, Tensor]] = []

    def kept(rows: Tensor, positives: Tensor, *, temperature: float) -> Tensor:
        given.append((rows, positives))
        return nt_xent(rows, positives, temperature=temperature)

    monkeypatch.setattr(scs, "nt_xent", kept)
    step = step_of(stage, unlabelled=0, size=32, **other)
    loss = stage.losses(step)["local"]
    loss.backward()
    assert with_gradient(step.student) == {"unet", "scs_local"}
    return loss, *given[0]


def test_stage_2_draws_few_pixels_and_organs_are_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scs, "weak_view", as_they_are)
    stage = stage_of(SCSLocal, pixels=120, temperature=0.2)
    loss, rows, positives = local_step(monkeypatch, stage)
    assert rows.shape == (120, 128) and positives.shape == (120, 120)
    labels = step_of(stage, unlabelled=0, size=32).labelled.labels.flatten(1)
    g = seeded(0)
    for _ in range(2):  # appearance comes first
        step_of(stage).augment.appearance(g, torch.zeros(3, 1, 32, 32), scs.ACR)
    places = torch.randperm(32 * 32, generator=g)[:20]
    classes = labels[:, places].flatten().tolist() * 2
    expected = torch.tensor([[a == b and a > 0 for b in classes] for a in classes])
    assert torch.equal(positives, expected)
    assert 0 in classes and len(set(classes)) == CLASSES
    torch.testing.assert_close(loss, nt_xent(rows, expected, temperature=0.2))


def test_pixels_come_from_where_their_labels_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """With features that are the labels themselves, every pixel's row names the class that makes its positives."""
    stage = stage_of(SCSLocal, pixels=600)
    step = step_of(stage, unlabelled=0, size=32)
    monkeypatch.setattr(scs, "weak_view", as_they_are)
    labels = step.labelled.labels

    class Paint(nn.Module):
        def forward(self, images: Tensor) -> object:
            maps = torch.eye(CLASSES)[labels].movedim(-1, 1).repeat(2, 1, 1, 1)
            return scs.UNetOutput(maps, [maps])

    step.student["unet"], step.student["scs_local"] = Paint(), nn.Identity()
    seen: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(scs, "nt_xent", lambda rows, positives, **_: seen.append((rows, positives)))
    stage.losses(step)
    rows, positives = seen[0]
    classes = rows.argmax(1)
    assert len(rows) == 600 and torch.equal(positives, (classes[:, None] == classes) & (classes > 0))


def test_a_network_that_knows_the_classes_is_at_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(SCSLocal, pixels=240)
    _, rows, positives = local_step(monkeypatch, stage)
    one_class = positives.float().argmax(1)  # the first of its class; background is on its own
    known = torch.eye(len(rows))[torch.where(positives.any(1), one_class, 0)]
    assert nt_xent(known, positives, temperature=0.1) < nt_xent(rows.detach(), positives, temperature=0.1)


def test_pixels_are_drawn_from_the_steps_generator() -> None:
    def once(seed: int) -> Tensor:
        stage = stage_of(SCSLocal, pixels=60)
        step = replace(step_of(stage, unlabelled=0, size=32), generator=seeded(seed))
        head = calls_of(step.student["scs_local"])
        torch.manual_seed(0)
        stage.losses(step)
        return head[0][0].detach()

    assert torch.equal(once(1), once(1)) and not torch.equal(once(1), once(2))


def test_stages_batches_and_optimisers() -> None:
    assert method_named("scs").stages == (SCSGlobal, SCSLocal, SCSFinetune) and issubclass(SCSFinetune, Supervised)
    assert [span.steps for span in spans(small_config("scs", steps=100))] == [20, 20, 60]
    one, two = stage_of(SCSGlobal), stage_of(SCSLocal)
    assert one.everything and not two.unlabelled
    assert one.batch(Batch(3, 3)) == (1, 12) and two.batch(Batch(6, 6)) == (6, 1) and two.batch(Batch(1, 1)) == (2, 1)
    rates = [(t.optimiser["lr"], t.optimiser["weight_decay"]) for s in (one, two) for t in s.turns()]
    assert rates == [(3e-4, 1e-5), (1e-4, 1e-4)]
    assert stage_of(SCSFinetune).turns()[0].optimiser == {}
    with pytest.raises(InputError, match=r"scs-local\.pixels must be 2 or greater"):
        SCSLocal.Settings(pixels=1)
    with pytest.raises(InputError, match=r"scs-global\.temperature"):
        SCSGlobal.Settings(temperature=0)
