"""PLC: whose labels are learned from, when they are renewed, and that a resumed run does not notice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from helpers.small_runs import small_config, train, trainer_of
from helpers.steps import CLASSES, calls_of, following, seeded, stage_of, step_of, with_gradient
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_train.augment import Fitted
from mona_train.engine.distributed import SingleProcess
from mona_train.engine.trainer import spans
from mona_train.losses.class_means import class_means_contrast
from mona_train.losses.supervised import dice
from mona_train.losses.unsupervised import IGNORE
from mona_train.methods import plc
from mona_train.methods.plc import PLC, PLCBaseline, begins
from mona_train.methods.registry import method_named
from mona_train.methods.supervised import Supervised


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def drift(network: nn.Module) -> None:
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.add_(1)


def test_rounds_start_at_each_third() -> None:
    assert [n for n in range(300) if begins(n, 300, 3)] == [0, 100, 200]
    assert [n for n in range(16) if begins(n, 16, 3)] == [0, 6, 11]
    assert [n for n in range(10) if begins(n, 10, 1)] == [0]
    assert [n for n in range(2) if begins(n, 2, 3)] == [0, 1]


def test_the_labeller_is_the_student_of_the_rounds_first_step() -> None:
    stage = stage_of(PLC)
    step = step_of(stage, steps=9, size=32)
    unet = step.student["unet"]
    assert not same(stage.labeller, unet)
    for index in range(9):
        start = {name: t.clone() for name, t in unet.state_dict().items()}
        stage.losses(following(step, index))
        if index in (0, 3, 6):
            kept = start
        assert all(torch.equal(kept[name], t) for name, t in stage.labeller.state_dict().items())
        drift(unet)
    assert not same(stage.labeller, unet)


def test_losses_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(PLC, temperature=0.2, pixels=4, contrast_weight=0.3)
    step = step_of(stage, size=32)
    given: list[tuple[Tensor, Tensor, Tensor]] = []

    def kept(maps: Tensor, labels: Tensor, draws: Tensor, *, temperature: float) -> Tensor:
        given.append((maps, labels, draws))
        return class_means_contrast(maps, labels, draws, temperature=temperature)

    monkeypatch.setattr(plc, "class_means_contrast", kept)
    student, head = calls_of(step.student["unet"]), calls_of(step.student["plc_head"])
    losses = stage.losses(step)
    (images, out), (features, maps) = student[0], head[0]
    seen, labels, draws = given[0]
    assert len(images) == 6 and features is out.features[-1] and seen is maps and draws.shape == (6, CLASSES - 1, 4)
    known = (labels != IGNORE)[:, None].float()
    torch.testing.assert_close(losses["dice"], dice(out.logits.softmax(1), labels.clamp(min=0), known))
    torch.testing.assert_close(losses["contrast"], class_means_contrast(maps, labels, draws, temperature=0.2))
    assert stage.weights(step) == {"contrast": 0.3} and stage_of(PLC).weights(step) == {"contrast": 0.1}
    assert list(stage_of(PLC, contrast_weight=0).losses(step)) == ["dice"]


def painter(stage: PLC) -> list[Tensor]:
    """A labeller that reads class n from the intensity 0.9 n/3 of helpers.steps; returns the images that it sees."""
    seen: list[Tensor] = []

    def paint(images: Tensor) -> plc.UNetOutput:
        assert not stage.labeller.training and not torch.is_grad_enabled()
        seen.append(images)
        classes = (3 * (images[:, 0] - 0.05) / 0.9).round().long().clamp(0, CLASSES - 1)
        return plc.UNetOutput(torch.eye(CLASSES)[classes].movedim(-1, 1), [])

    stage.labeller.forward = paint
    return seen


@pytest.mark.parametrize("window", [None, (32, 32)])
def test_pseudo_labels_are_made_upright_and_move_with_the_image(window: tuple[int, int] | None) -> None:
    stage = stage_of(PLC)
    stage.labeller.train()  # even if somebody did
    step = replace(step_of(stage, index=1, size=48), window=window, augment=Fitted())
    seen = painter(stage)
    images, labels = stage.seen(step)
    side = 48 if window is None else 32
    assert images.shape == (6, 1, side, side) and labels.shape == (6, side, side)
    inner = slice(None) if window is None else slice(8, 40)
    assert torch.equal(seen[0], step.unlabelled.images[:, :, inner, inner])
    assert labels[:3].min() >= 0 and set(labels[3:].unique().tolist()) == {IGNORE, 0, 1, 2, 3}
    for view, label in zip(images[:, 0], labels, strict=True):
        brightness = [view[label == n].mean() for n in range(CLASSES) if (label == n).sum() > 20]
        assert len(brightness) > 1 and all(a + 0.1 < b for a, b in pairwise(brightness))


def test_what_is_unknown_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(PLC)
    step = step_of(stage, size=32)
    images = torch.cat([step.labelled.images, step.unlabelled.images])
    labels = torch.ones(6, 32, 32, dtype=torch.int64)
    labels[3:, :16] = IGNORE
    monkeypatch.setattr(stage, "seen", lambda step: (images, labels))
    student = calls_of(step.student["unet"])
    loss = stage.losses(step)["dice"]
    out = student[0][1]
    (gradient,) = torch.autograd.grad(loss, out.logits)
    assert not gradient[3:, :, :16].any() and gradient[3:, :, 16:].any() and gradient[:3].any()


def test_the_student_learns_and_the_labeller_does_not() -> None:
    stage = stage_of(PLC)
    step = step_of(stage, size=32)
    stage.labeller.requires_grad_(True)
    losses = stage.losses(step)
    losses["dice"].backward(retain_graph=True)
    assert with_gradient(step.student) == {"unet"}
    losses["contrast"].backward()
    assert with_gradient(step.student) == {"unet", "plc_head"}
    assert all(p.grad is None for p in stage.labeller.parameters())
    assert not any(p.requires_grad for p in stage_of(PLC).labeller.parameters())


def test_without_unlabelled_slices_it_still_trains() -> None:
    stage = stage_of(PLC)
    assert list(stage.losses(step_of(stage, unlabelled=0, size=32))) == ["dice", "contrast"]


def test_every_process_gets_the_same_labeller() -> None:
    class Doubled(SingleProcess):
        def average_(self, tensors: object) -> None:
            for tensor in tensors:
                tensor.mul_(2)

    stage = stage_of(PLC)
    step = replace(step_of(stage, size=32), processes=Doubled())
    mean = step.student["unet"].encoder[0][1].running_var.clone()
    stage.losses(step)
    torch.testing.assert_close(stage.labeller.encoder[0][1].running_var, 2 * mean)
    assert torch.equal(stage.labeller.encoder[0][0].weight, step.student["unet"].encoder[0][0].weight)


def test_a_resumed_run_is_bit_identical() -> None:
    config = small_config("plc", steps=12)
    whole = train(trainer_of(config), until=8)  # stages of 3 and 9 steps: rounds start at 3, 6 and 9
    state = whole.state()
    assert any(name.startswith("memory") and "labeller" in name for name in state[0])
    tensors = {name: tensor.clone() for name, tensor in state[0].items()}
    train(whole)
    again = trainer_of(config)
    again.load(tensors, state[1])
    train(again)
    assert same(whole.student, again.student) and same(whole.stage, again.stage)


def test_draws_are_from_the_steps_generator() -> None:
    def once(seed: int) -> Tensor:
        stage = stage_of(PLC)
        step = replace(step_of(stage, size=32), generator=seeded(seed))
        torch.manual_seed(0)
        return stage.losses(step)["contrast"].detach()

    assert torch.equal(once(1), once(1)) and not torch.equal(once(1), once(2))


def test_stages() -> None:
    assert method_named("plc").stages == (PLCBaseline, PLC) and issubclass(PLCBaseline, Supervised)
    assert [span.steps for span in spans(small_config("plc", steps=100))] == [25, 75]
    with pytest.raises(InputError, match=r"plc\.rounds must be 1 or greater"):
        PLC.Settings(rounds=0)
