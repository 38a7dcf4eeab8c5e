"""GLCon: what each network sees, what the banks hold, who learns, and when the losses start (method 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import (
    STILL,
    calls_of,
    following,
    stage_of,
    step_of,
    weights_at,
    with_gradient,
    within,
    without_dropout,
)
from torch import Tensor, nn

from mona_train.engine.distributed import SingleProcess
from mona_train.losses.neighbours import nearest_neighbours
from mona_train.losses.relational import relational_kl
from mona_train.losses.supervised import supervised
from mona_train.methods import glcon
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Step
from mona_train.methods.glcon import GLCon


def filled(**settings: Any) -> tuple[GLCon, Step]:
    """A stage whose banks were just filled (12 rows, by two steps of 6), and the step after."""
    stage = stage_of(GLCon, **{"bank": 12, "windows": 3, **settings})
    step = step_of(stage)
    for n in range(2):
        stage.losses(following(step, n))
    return stage, following(step, 2)


def test_networks_and_settings_are_those_of_the_method() -> None:
    stage = stage_of(GLCon)
    assert list(stage.networks()) == ["unet", "projector", "predictor", "local", "local_predictor"]
    assert stage.averaged == ("unet", "projector", "local")  # a teacher has no predictor
    assert stage.slices.kept.shape == (36, 512) and stage.crops.kept.shape == (36, 36, 512)
    s = stage.settings
    assert (s.student_temperature, s.teacher_temperature, s.windows, s.supervised_scale) == (0.1, 0.01, 6, 1.0)
    assert weights_at(stage) == {"global": 1.0, "local": 1.0}
    assert weights_at(stage_of(GLCon, global_weight=0.5, local_weight=2.0)) == {"global": 0.5, "local": 2.0}


@pytest.mark.parametrize(("batch", "steps"), [((3, 3), 6), ((3, 2), 8), ((4, 0), 9)])
def test_relations_start_when_the_bank_has_been_filled_once(batch: tuple[int, int], steps: int) -> None:
    stage = stage_of(GLCon, windows=2)
    step = step_of(stage, labelled=batch[0], unlabelled=batch[1], size=32)
    for n in range(steps):
        assert list(stage.losses(following(step, n))) == ["supervised"]
    losses = stage.losses(following(step, steps))
    assert list(losses) == ["supervised", "global", "local"]
    assert all(loss.isfinite() and loss > 0 for loss in losses.values())


def test_the_student_learns_and_no_teacher_or_bank_does() -> None:
    stage, step = filled()
    step.teacher.requires_grad_(True)  # even if somebody forgot to freeze it (difference 14)
    before = {name: t.clone() for name, t in stage.state_dict().items()}
    losses = stage.losses(step)
    sum(losses.values()).backward()
    assert with_gradient(step.student) == {"unet", "projector", "predictor", "local", "local_predictor"}
    assert all(p.grad is None for p in step.teacher.parameters())
    assert not any(t.requires_grad or t.grad is not None for t in stage.buffers())
    assert not torch.equal(before["slices.kept"], stage.slices.kept)


def test_each_loss_reaches_its_own_networks() -> None:
    """The projector hangs on the bottleneck, so `global` leaves the decoder alone; windows are of the logits."""
    stage, step = filled()
    losses = stage.losses(step)
    expected = {
        "supervised": {"unet"},
        "global": {"unet", "projector", "predictor"},
        "local": {"unet", "local", "local_predictor"},
    }
    for name, networks in expected.items():
        step.student.zero_grad()
        losses[name].backward(retain_graph=True)
        assert with_gradient(step.student) == networks
        assert any(p.grad is not None for p in step.student["unet"].decoder.parameters()) == (name != "global")


def test_losses_are_those_of_their_embeddings() -> None:
    stage, step = filled(student_temperature=0.2, teacher_temperature=0.05)
    slices, crops = stage.slices.rows.clone(), stage.crops.rows.clone()
    seen = {name: calls_of(net) for name, net in step.student.items()}
    taught = {name: calls_of(net) for name, net in step.teacher.items()}
    losses = stage.losses(step)
    warmth = {"t_student": 0.2, "t_teacher": 0.05}
    u, v = seen["predictor"][0][1], taught["projector"][0][1]
    torch.testing.assert_close(losses["global"], relational_kl(u, v, slices, **warmth))  # before v was added
    u, v = seen["local_predictor"][0][1], taught["local"][0][1]
    torch.testing.assert_close(losses["local"], relational_kl(u, v, crops, **warmth))
    assert all(len(calls) == 1 for calls in (*seen.values(), *taught.values()))


def test_the_bank_takes_the_teachers_embeddings_of_all_slices_after_the_losses() -> None:
    stage, step = filled()
    old = stage.slices.rows.clone(), stage.crops.rows.clone()
    taught = {name: calls_of(step.teacher[name]) for name in ("projector", "local")}
    stage.losses(step)
    for bank, before, name in zip((stage.slices, stage.crops), old, taught, strict=True):
        new = F.normalize(taught[name][0][1], dim=-1)
        assert len(new) == 6
        torch.testing.assert_close(bank.rows, torch.cat([new, before[6:]]))


def test_embeddings_of_every_process_enter_the_bank() -> None:
    class Two(SingleProcess):
        rank, size = 0, 2

        def gather(self, rows: Tensor) -> Tensor:
            return torch.cat([rows, -rows]).detach()

    stage = stage_of(GLCon, bank=12, windows=2)
    step = replace(step_of(stage), processes=Two())
    stage.losses(step)
    assert stage.slices.full and stage.crops.full
    torch.testing.assert_close(stage.slices.rows[6:], -stage.slices.rows[:6])


def record(monkeypatch: pytest.MonkeyPatch, step: Step) -> dict[str, Any]:
    """What reached the networks and the supervised loss, with no change of intensity."""
    monkeypatch.setattr(glcon, "GLCON", STILL)
    seen: dict[str, Any] = {"student": calls_of(step.student["unet"]), "teacher": calls_of(step.teacher["unet"])}

    def kept(logits: Tensor, labels: Tensor) -> Tensor:
        seen["logits"], seen["labels"] = logits, labels
        return supervised(logits, labels)

    monkeypatch.setattr(glcon, "supervised", kept)
    return seen


def test_both_views_share_their_geometry_and_labels_move_along(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(GLCon, windows=2)
    step = following(step_of(stage), 4)  # a step that turns, rotates and crops
    seen = record(monkeypatch, step)
    stage.losses(step)
    (student, out), (teacher, _) = seen["student"][0], seen["teacher"][0]
    assert torch.equal(student, teacher)
    assert not torch.equal(student[:3], step.labelled.images)
    assert torch.equal(seen["logits"], out.logits[:3])  # the labelled come first
    sure = within(seen["labels"])
    sure[:, :3], sure[:, -3:], sure[:, :, :3], sure[:, :, -3:] = False, False, False, False  # beyond: zero, faded
    class_there = (student[:3, 0] * 3 / 0.95).round().long()  # images are 0.9 n/3 + noise in 0..0.1
    off = ((class_there != seen["labels"]) & sure).float().sum() / sure.sum()
    assert sure.float().mean() > 0.5 and off < 0.01


def test_views_do_not_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published pair was one view (difference 6): whatever the teacher does to its input, the student's stays."""
    stage = stage_of(GLCon, windows=2)
    step = step_of(stage)
    cached = step.labelled.images.clone(), step.unlabelled.images.clone()
    seen = record(monkeypatch, step)
    views: list[Tensor] = []

    def spoil(_: nn.Module, given: tuple[Tensor]) -> None:
        views.append(given[0].clone())
        given[0].add_(5)

    step.teacher["unet"].register_forward_pre_hook(spoil)
    step.student["unet"].register_forward_pre_hook(spoil)
    stage.losses(step)
    assert torch.equal(views[0], views[1])
    assert seen["student"][0][0].data_ptr() != seen["teacher"][0][0].data_ptr()
    assert torch.equal(step.labelled.images, cached[0]) and torch.equal(step.unlabelled.images, cached[1])


def test_only_the_students_intensities_change() -> None:
    stage = stage_of(GLCon, windows=2)
    step = following(step_of(stage), 4)
    student, teacher = calls_of(step.student["unet"]), calls_of(step.teacher["unet"])
    stage.losses(step)
    weak, strong = teacher[0][0], student[0][0]
    changed = (weak - strong).abs().flatten(1).amax(1) > 0.01
    assert changed.any()
    levels = torch.cat([step.labelled.images, step.unlabelled.images]).flatten()
    known = torch.isin(weak[:, 0, 20:44, 20:44], levels).float().mean((1, 2))
    assert (known == 1).any()  # turned or left as it was: every level of a weak view is one of the slice's own


def test_both_networks_are_cut_into_the_same_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, step = filled()
    without_dropout(step.student)
    record(monkeypatch, step)
    student, teacher = calls_of(step.student["local"]), calls_of(step.teacher["local"])
    stage.losses(step)
    assert student[0][0].shape == (6, 9, 4, 16, 16)
    torch.testing.assert_close(student[0][0], teacher[0][0])  # the same weights, the same view


def test_the_supervised_scale_scales() -> None:
    found = []
    for scale in (1.0, 0.5):
        stage = stage_of(GLCon, windows=2, supervised_scale=scale)
        step = step_of(stage)
        without_dropout(step.student)
        found.append(float(stage.losses(step)["supervised"].detach()))
    assert found[1] == pytest.approx(found[0] / 2)


def test_a_step_is_a_function_of_its_generator() -> None:
    def once(seed: int) -> Losses:
        stage, step = filled()
        torch.manual_seed(7)
        return stage.losses(replace(step, generator=torch.Generator().manual_seed(seed)))

    first, again, other = once(1), once(1), once(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("norm", ["ln", "none"])
def test_other_norms_train_too(norm: str) -> None:
    stage, step = filled(norm=norm)
    sum(stage.losses(step).values()).backward()
    assert with_gradient(step.student) == set(step.student)


def test_neighbours_reach_the_student_and_nothing_else() -> None:
    """With the heads that GLCon hands to the fine-tuning: the published L_nn has no gradient (difference 3)."""
    stage = stage_of(GLCon)
    step = step_of(stage)
    bank = Bank(36, (512,))
    bank.add(torch.randn(36, 512))
    images = step.unlabelled.images
    u = step.student["predictor"](step.student["projector"](step.student["unet"](images).bottleneck))
    v = step.teacher["projector"](step.teacher["unet"](images).bottleneck)
    nearest_neighbours(u, v, bank).backward()
    assert with_gradient(step.student) == {"unet", "projector", "predictor"}
    assert all(p.grad is None for p in step.teacher.parameters())
    assert all(t.grad is None and not t.requires_grad for t in bank.buffers())
