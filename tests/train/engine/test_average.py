"""`average`: the run's answer is the EMA network, with the statistics of whole slices; a resumed run is the run."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.small_runs import ADAMW, PATIENTS, slices_of, small_config, train, trainer_of
from helpers.steps import calls_of, seeded
from helpers.trainers import copied, state_hash
from torch import Tensor, nn

from mona_train.config.schema import Config
from mona_train.engine.batch_statistics import BATCHES, recount_
from mona_train.engine.ema_teacher import average_, teacher_of, teaching_mode, warmed_up
from mona_train.engine.trainer import Trainer
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash

METHODS = ("mona", "mean-teacher", "unet-l")


def averaging(method: str = "mona") -> Config:
    """With one learning rate schedule over both stages, as the presets have it."""
    return small_config(method, optimiser=replace(ADAMW, hold=0.5, over="run"), average=True)


def statistics(networks: nn.Module) -> dict[str, Tensor]:
    return {name: b.clone() for name, b in networks.named_buffers() if b.is_floating_point()}


def body() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"unet": nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))})


# ---- the teacher


def test_what_a_teacher_sees_does_not_change_the_statistics_it_answers_with() -> None:
    student, images = body(), 5 + 3 * torch.randn(4, 1, 8, 8)
    student["unet"](images)
    teachers = [teacher_of(student, ("unet",), answers=answers) for answers in (True, False)]
    before = statistics(student)
    assert all(bool(s.any()) for s in before.values())
    for teacher in teachers:
        teaching_mode(teacher)
        out = teacher["unet"](images)
        torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(4), atol=1e-5, rtol=0)  # the batch's own
    kept, moved = (statistics(teacher) for teacher in teachers)
    assert all(torch.equal(kept[name], before[name]) for name in before)
    assert not any(torch.equal(moved[name], before[name]) for name in before)
    assert student["unet"][1].momentum == 0.1  # the student still learns its own


def test_only_weights_are_averaged() -> None:
    student = body()
    teacher = teacher_of(student, ("unet",), answers=True)
    with torch.no_grad():
        for tensor in (*student.parameters(), *student.buffers()):
            tensor.add_(1)
    before, weights = copied(teacher), {name for name, _ in teacher.named_parameters()}
    average_(teacher, student, 0.9)
    for name, t in teacher.state_dict().items():
        torch.testing.assert_close(t, before[name] + 0.1 if name in weights else before[name])


# ---- the batch statistics that it answers with


def test_statistics_are_the_averages_over_the_batches_that_are_shown() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(2, momentum=0.0))
    network[1].running_mean.fill_(7)
    batches = [torch.randn(4, 2, 5, 5, generator=seeded(n)) + n for n in range(3)]
    recount_(network, batches)
    norm = network[1]
    torch.testing.assert_close(norm.running_mean, torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([b.var((0, 2, 3)) for b in batches]).mean(0))
    assert norm.momentum == 0.0 and not any(m.training for m in network.modules())


def test_a_trainer_shows_whole_slices_as_they_are() -> None:
    trainer = train(trainer_of(averaging()), 3)
    weights = copied(trainer.student)
    seen = calls_of(trainer.network)
    trainer.settle()
    assert len(seen) == BATCHES
    known = {tuple(i.flatten().tolist()) for n in range(PATIENTS) for i in torch.from_numpy(slices_of(n)[0] / 65535)}
    for images, _ in seen:
        assert len(images) == 8
        for image in images.double():
            assert any(torch.allclose(image.flatten(), torch.tensor(k, dtype=torch.float64), atol=1e-4) for k in known)
    assert all(torch.equal(t, weights[name]) for name, t in trainer.student.state_dict().items())
    plain = train(trainer_of(replace(averaging(), average=False)), 3)
    before = copied(plain.student)
    plain.settle()  # the published answer has the statistics of training
    assert all(torch.equal(t, before[name]) for name, t in plain.student.state_dict().items())


def test_the_average_follows_faster_at_first() -> None:
    assert [warmed_up(0.99, n) for n in (0, 1, 10, 90)] == pytest.approx([1 / 10, 2 / 11, 11 / 20, 91 / 100])
    assert warmed_up(0.99, 890) == warmed_up(0.99, 10_000) == 0.99
    assert warmed_up(0.05, 0) == 0.05


# ---- the trainer


@pytest.mark.parametrize("method", METHODS)
def test_the_answer_is_the_average_of_weights(method: str) -> None:
    """After each step, by hand; it starts anew with each stage, from what the last one answered with."""
    trainer = trainer_of(averaging(method))
    for span in trainer.spans:
        trainer.prepare_step()
        assert trainer.network is trainer.teacher["unet"] is trainer.answering["unet"]
        while trainer.number < span.stop:
            index, before = trainer.number - span.first, copied(trainer.teacher)
            trainer.step()
            decay = min(1 - 1 / (index + 1), 0.99) if method == "mean-teacher" else 0.99
            decay = min(decay, (1 + index) / (10 + index))
            student, now = trainer.student.state_dict(), trainer.teacher.state_dict()
            for name in (name for name, _ in trainer.teacher.named_parameters()):
                expected = decay * before[name].double() + (1 - decay) * student[name].double()
                torch.testing.assert_close(now[name].double(), expected, atol=1e-7, rtol=2e-6)


@pytest.mark.parametrize("method", METHODS)
def test_without_it_the_answer_is_the_student(method: str) -> None:
    trainer = trainer_of(small_config(method))
    trainer.prepare_step()
    assert trainer.network is trainer.student["unet"]
    assert ("unet" in trainer.teacher) == (method != "unet-l")  # a method without a teacher has none


def test_a_method_without_a_teacher_has_one_to_answer() -> None:
    trainer = trainer_of(averaging("unet-l"))
    trainer.prepare_step()
    assert list(trainer.teacher) == ["unet"]


def test_the_next_stage_starts_from_the_average_with_statistics_of_its_own() -> None:
    trainer = train(trainer_of(averaging()), 8)
    untold = copied(trainer.teacher)
    trainer.settle()
    averaged, students = copied(trainer.teacher), copied(trainer.student)
    trainer = train(trainer_of(averaging()), 8)
    trainer.prepare_step()
    assert trainer.span is not None and trainer.span.stage.name == "acr"
    for name, t in trainer.student.state_dict().items():
        if name in averaged:
            assert torch.equal(t, averaged[name])
        elif name in students:  # of networks that have no average
            assert torch.equal(t, students[name])
    assert "predictor" in {name.partition(".")[0] for name in students.keys() - averaged.keys()}
    assert not torch.equal(averaged["unet.head.weight"], students["unet.head.weight"])
    mean = next(name for name in averaged if name.endswith("running_mean"))
    assert not torch.equal(averaged[mean], students[mean]) and not torch.equal(averaged[mean], untold[mean])


@pytest.mark.parametrize("method", METHODS)
def test_resumed_after_every_step_it_ends_in_the_same_state(method: str, tmp_path: Path) -> None:
    config, file = averaging(method), tmp_path / "last.safetensors"
    straight, trainer = trainer_of(config), trainer_of(config)
    while not straight.finished:
        straight.step()
        trainer.step()
        assert state_hash(trainer) == state_hash(straight), f"after step {straight.number}"
        checkpoint.save(file, *trainer.state())
        trainer = trainer_of(config)
        trainer.load(*checkpoint.load(file))
    assert weights_hash(trainer.network.state_dict()) == weights_hash(straight.network.state_dict())
    assert trainer.finished


def test_it_changes_the_answer_and_not_what_the_student_learns_in_the_first_stage() -> None:
    """A supervised student never hears of its average."""

    def student_of(config: Config) -> Trainer:
        return train(trainer_of(config), 6)

    plain, averaged = student_of(replace(averaging("unet-l"), average=False)), student_of(averaging("unet-l"))
    assert weights_hash(plain.student.state_dict()) == weights_hash(averaged.student.state_dict())
    images = torch.rand(2, 1, 32, 32)
    first, second = (copy.deepcopy(t.network).eval()(images).logits for t in (plain, averaged))
    assert not torch.equal(first, second)
