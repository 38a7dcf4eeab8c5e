"""Optimisers, teachers and the order of things within a step, on networks small enough to follow by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
import torch
from helpers.small_runs import small_config, trainer_of
from torch import Tensor, nn

from mona_train.config.schema import Batch, Config, Optimiser
from mona_train.engine.ema_teacher import average_, teacher_of, teaching_mode
from mona_train.engine.optimise import optimiser, rate
from mona_train.methods import base
from mona_train.methods.acr import ACR
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.glcon import GLCon
from mona_train.methods.mean_teacher import MeanTeacher
from mona_train.methods.registry import methods
from mona_train.methods.supervised import Supervised

STUDENT_DECAY = 0.25  # of Probe's EMA, and not the run's


# --- optimisers


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_has_momentum_weight_decay_and_nesterov_where_asked(nesterov: bool) -> None:
    """Three steps by hand: g += wd p; m = 0.9 m + g; p -= lr (g + 0.9 m) with Nesterov, lr m without."""
    settings = Optimiser(lr=0.1, momentum=0.9, weight_decay=0.5)
    torch.manual_seed(0)  # a weight that comes near 0 would be further off than its 1e-5th
    network = nn.Linear(1, 1, bias=False)
    p = network.weight.item()
    sgd, m = optimiser(settings, [network], nesterov=nesterov), 0.0
    for gradient in (1.0, -2.0, 0.5):
        network.weight.grad = torch.tensor([[gradient]])
        sgd.step()
        g = gradient + 0.5 * p
        m = 0.9 * m + g
        p -= 0.1 * (g + 0.9 * m if nesterov else m)
        assert network.weight.item() == pytest.approx(p, rel=1e-5)


def test_adamw_decays_every_weight_by_what_was_set() -> None:
    settings = Optimiser(kind="adamw", lr=0.1, weight_decay=0.3)
    (group,) = optimiser(settings, [nn.Linear(2, 2)], nesterov=True).param_groups
    assert (group["lr"], group["weight_decay"], len(group["params"])) == (0.1, 0.3, 2)


def test_only_fine_tuning_is_nesterovs() -> None:
    assert [kind.nesterov for kind in (GLCon, ACR, Supervised, MeanTeacher)] == [False, True, False, False]


def test_the_rate_falls_by_its_power_and_warms_up_from_the_first_step() -> None:
    settings = Optimiser(lr=0.01, power=0.9)
    for t in (0, 1, 50, 99):
        assert rate(settings, t, 100) == pytest.approx(0.01 * (1 - t / 100) ** 0.9)
    warm = replace(settings, warmup=0.1, power=2.0)
    for t in (0, 4, 9, 10, 60):
        assert rate(warm, t, 100) == pytest.approx(0.01 * min(1.0, (t + 1) / 10) * (1 - t / 100) ** 2)


def test_the_rate_is_held_and_then_falls_over_the_rest() -> None:
    settings = Optimiser(lr=0.01, power=1.0, warmup=0.1, hold=0.6)
    rates = [rate(settings, t, 100) / 0.01 for t in range(100)]
    assert rates[:10] == pytest.approx([(t + 1) / 10 for t in range(10)])  # the warm-up is part of it
    assert {*rates[10:61]} == {1.0}
    assert rates[61:] == pytest.approx([1 - n / 40 for n in range(1, 40)])
    curved = replace(settings, power=0.9)
    assert rate(curved, 80, 100) == pytest.approx(0.01 * 0.5**0.9)
    always = replace(settings, hold=1.0)
    assert {rate(always, t, 100) for t in (10, 60, 99)} == {0.01}


# --- teachers


def networks() -> nn.ModuleDict:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Dropout2d(0.5))
    return nn.ModuleDict({"unet": body, "predictor": nn.Linear(2, 2)})


def test_a_teacher_is_a_copy_of_the_networks_named_and_no_gradient_reaches_it() -> None:
    student = networks()
    teacher = teacher_of(student, ("unet",))
    assert list(teacher) == ["unet"]
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), student["unet"].parameters(), strict=True))
    assert not any(p.requires_grad for p in teacher.parameters())
    assert all(p.requires_grad for p in student.parameters())
    student["unet"][0].weight.data.add_(1)
    assert not torch.equal(teacher["unet"][0].weight, student["unet"][0].weight)


def test_a_teacher_uses_batch_statistics_and_no_dropout() -> None:
    """decision 4: it answers the same twice, normalises by the batch it sees, and keeps statistics of its own."""
    teacher, images = teacher_of(networks(), ("unet",)), 5 + 3 * torch.randn(4, 1, 8, 8)
    teacher.eval()
    teaching_mode(teacher)
    first, second = teacher["unet"](images), teacher["unet"](images)
    assert torch.equal(first, second)
    torch.testing.assert_close(first.mean((0, 2, 3)), torch.zeros(4), atol=1e-5, rtol=0)
    assert bool(teacher["unet"][1].running_mean.any())


def test_the_average_is_of_parameters_alone() -> None:
    student = networks()
    teacher = teacher_of(student, ("unet",))
    with torch.no_grad():
        for tensor in (*student.parameters(), *student.buffers()):
            tensor.add_(1)
    before = {name: t.clone() for name, t in teacher.state_dict().items()}
    average_(teacher, student, 0.9)
    weights = {name for name, _ in teacher.named_parameters()}
    for name, t in teacher.state_dict().items():
        torch.testing.assert_close(t, before[name] + 0.1 if name in weights else before[name])


# --- a step


@dataclass(frozen=True)
class NoSettings(base.Settings):
    """A toy."""


class Probe(base.Stage):
    """Two losses on one layer, one of them weighted; it keeps what it was given."""

    name = "probe"
    Settings = NoSettings
    averaged = ("unet",)
    seen: list[dict[str, Any]]

    def networks(self) -> dict[str, nn.Module]:
        return {"unet": nn.Sequential(nn.Conv2d(1, self.classes, 1), nn.BatchNorm2d(self.classes), nn.Dropout(0.5))}

    def weights(self, step: Step) -> dict[str, float]:
        return {"steep": 3.0}

    def ema(self, step: Step, decay: float) -> float:
        return STUDENT_DECAY

    def losses(self, step: Step) -> Losses:
        self.seen = [*getattr(self, "seen", []), {
            "student": weight_of(step.student), "teacher": weight_of(step.teacher), "index": step.index,
            "modes": [[m.training for m in net["unet"]] for net in (step.student, step.teacher)],
            "batch": (len(step.labelled.images), 0 if step.unlabelled is None else len(step.unlabelled.images)),
        }]  # fmt: skip
        w = step.student["unet"][0].weight
        return {"plain": w.sum(), "steep": w[0].sum()}


class Second(Probe):
    name = "second"
    unlabelled = False


def weight_of(networks: nn.ModuleDict) -> Tensor:
    return networks["unet"][0].weight.detach().flatten().clone()


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setitem(methods(), "probe", Method("probe", (Probe, Second), "two stages", "nobody", 2026))
    plain = Optimiser(lr=0.1, momentum=0.0, weight_decay=0.0, power=1.0)
    return small_config("probe", steps=8, optimiser=plain, batch=Batch(2, 5), ema=0.5)


def test_losses_are_weighted_and_gradients_do_not_add_up(probes: Config) -> None:
    """The gradient is 1 for every weight, from the loss that counts once, and 3 more for those of class 0."""
    trainer = trainer_of(probes)
    for n in range(3):
        trainer.prepare_step()
        before = weight_of(trainer.student)
        losses = trainer.step()
        lr = 0.1 * (1 - n / 4)
        torch.testing.assert_close(before - weight_of(trainer.student), lr * torch.tensor([4.0, 1.0, 1.0, 1.0]))
        assert float(losses["steep"]) == pytest.approx(float(before[0]))  # told as they are, unweighted


def test_the_teacher_follows_once_and_after_the_step(probes: Config) -> None:
    """decision 5; with the decay that the stage asks for."""
    trainer = trainer_of(probes)
    trainer.prepare_step()
    taught = weight_of(trainer.student)
    for _ in range(3):
        trainer.step()
        stage: Any = trainer.stage
        assert torch.equal(stage.seen[-1]["teacher"], taught)  # the student had not moved when the losses were found
        taught = STUDENT_DECAY * taught + (1 - STUDENT_DECAY) * weight_of(trainer.student)
        torch.testing.assert_close(weight_of(trainer.teacher), taught)
        taught = weight_of(trainer.teacher)


def test_the_student_learns_with_dropout_and_the_teacher_teaches_without(probes: Config) -> None:
    trainer = trainer_of(probes)
    trainer.prepare_step()
    trainer.student.eval()  # as validation leaves it
    trainer.teacher.train()
    trainer.step()
    student, teacher = trainer.stage.seen[0]["modes"]
    assert student == [True, True, True] and teacher[1:] == [True, False]


def test_the_second_stage_starts_at_its_own_first_step_from_the_student(probes: Config) -> None:
    trainer = trainer_of(probes)
    for _ in range(4):
        trainer.step()
    assert [seen["index"] for seen in trainer.stage.seen] == [0, 1, 2, 3]
    assert trainer.stage.seen[0]["batch"] == (2, 5)
    student = weight_of(trainer.student)
    assert not torch.equal(student, weight_of(trainer.teacher))
    trainer.step()
    seen = trainer.stage.seen[0]
    assert torch.equal(seen["student"], student) and torch.equal(seen["teacher"], student)
    assert seen["index"] == 0 and trainer.rate == pytest.approx(0.1)
    assert seen["batch"] == (7, 0)  # all labelled: the sum of both


@pytest.mark.parametrize("over", ["stage", "run"])
def test_stages_have_schedules_of_their_own_or_share_one(probes: Config, over: Literal["stage", "run"]) -> None:
    """Eight steps: in one schedule, half of them held; in two, half of each stage's four."""
    config = replace(probes, optimiser=replace(probes.optimiser, hold=0.5, over=over))
    trainer, seen = trainer_of(config), []
    for _ in range(8):
        trainer.step()
        seen.append(trainer.rate / 0.1)
    alone = [1, 1, 1, 0.5]
    assert seen == pytest.approx([1, 1, 1, 1, 1, 0.75, 0.5, 0.25] if over == "run" else alone * 2)


def test_methods_are_made_of_their_stages() -> None:
    stages = {name: method.stages for name, method in methods().items()}
    assert stages["mona"] == (GLCon, ACR) and stages["glcon"] == (GLCon,)
    assert stages["unet-f"] == stages["unet-l"] == (Supervised,) and stages["mean-teacher"] == (MeanTeacher,)
    assert [name for name, method in methods().items() if method.all_labels] == ["unet-f"]
