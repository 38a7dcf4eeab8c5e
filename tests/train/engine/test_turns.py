"""Two networks that take turns in a step, each with an optimiser of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.small_runs import small_config, trainer_of
from helpers.trainers import SGD, copied, state_hash
from torch import nn

from mona_train.config.schema import Config, Optimiser
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step, Turn
from mona_train.methods.registry import methods
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash


@dataclass(frozen=True)
class NoSettings(base.Settings):
    """A toy."""


class Rivals(base.Stage):
    """A segmenter and a critic that tells its maps from true ones, in turns; no dropout, so steps can be redone."""

    name = "rivals"
    Settings = NoSettings
    averaged = ("unet",)
    critic = Optimiser(kind="adamw", lr=3e-3, weight_decay=0.0)

    def networks(self) -> dict[str, nn.Module]:
        return {"unet": nn.Conv2d(1, self.classes, 3, padding=1), "critic": nn.Conv2d(self.classes, 1, 5)}

    def turns(self) -> tuple[Turn, ...]:
        return Turn(("unet",), self.losses), Turn(("critic",), self.judge, optimiser=vars(self.critic))

    def weights(self, step: Step) -> dict[str, float]:
        return {"fool": 0.5}

    def losses(self, step: Step) -> Losses:
        self.seen = {name: copied(network) for name, network in step.student.items()}
        out = step.student["unet"](step.labelled.images)
        verdict = step.student["critic"](out.softmax(1))  # a gradient reaches the critic, which must not use it
        return {
            "supervised": F.cross_entropy(out, step.labelled.labels),
            "fool": F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict)),
        }

    def judge(self, step: Step) -> Losses:
        self.midway = {name: copied(network) for name, network in step.student.items()}
        maps = step.student["unet"](step.labelled.images).softmax(1)  # nor the segmenter this one
        truth = F.one_hot(step.labelled.labels, self.classes).permute(0, 3, 1, 2).float()
        made, true = step.student["critic"](maps), step.student["critic"](truth)
        wrong = F.binary_cross_entropy_with_logits(made, torch.zeros_like(made))
        return {"critic": wrong + F.binary_cross_entropy_with_logits(true, torch.ones_like(true))}


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setitem(methods(), "rivals", Method("rivals", (Rivals,), "two networks in turn", "nobody", 2026))
    return small_config("rivals", steps=6, optimiser=replace(SGD, power=0.0))


def test_each_turn_steps_its_own_networks(rivals: Config) -> None:
    trainer = trainer_of(rivals)
    for _ in range(3):
        assert list(trainer.step()) == ["supervised", "fool", "critic"]
        stage: Any = trainer.stage
        end = {name: copied(network) for name, network in trainer.student.items()}
        assert moved(stage.seen, stage.midway) == {"unet"}
        assert moved(stage.midway, end) == {"critic"}


def moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if weights_hash(before[name]) != weights_hash(after[name])}


def test_a_turn_takes_no_gradient_of_another(rivals: Config) -> None:
    """The trainer's first steps, redone with plain torch and gradients taken for one network at a time."""
    trainer = trainer_of(rivals)
    trainer.prepare_step()
    mine = nn.ModuleDict(Rivals(NoSettings(), classes=4).networks())
    mine.load_state_dict(copied(trainer.student))
    unet = torch.optim.SGD(mine["unet"].parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    critic = torch.optim.AdamW(mine["critic"].parameters(), lr=3e-3, weight_decay=0.0)
    for n in range(4):
        step: Any = SimpleNamespace(student=mine, labelled=trainer._labelled.batch(n))
        stage = Rivals(NoSettings(), classes=4)
        for optimiser, network, find in ((unet, "unet", stage.losses), (critic, "critic", stage.judge)):
            parameters = list(mine[network].parameters())
            losses = find(step)
            total = sum((0.5 if name == "fool" else 1.0) * loss for name, loss in losses.items())
            for p, gradient in zip(parameters, torch.autograd.grad(total, parameters), strict=True):
                p.grad = gradient
            if network == "critic":
                share = (1 - n / 6) ** 0.9  # the turn's own optimiser has its own schedule
                critic.param_groups[0]["lr"] = 3e-3 * share
            optimiser.step()
        trainer.step()
        torch.testing.assert_close(dict(trainer.student.state_dict()), dict(mine.state_dict()))


def test_two_optimisers_are_both_resumed(rivals: Config, tmp_path: Path) -> None:
    straight, file = trainer_of(rivals), tmp_path / "last.safetensors"
    trainer = trainer_of(rivals)
    for _ in range(rivals.steps):
        straight.step()
        trainer.step()
        assert state_hash(trainer) == state_hash(straight)
        checkpoint.save(file, *trainer.state())
        trainer = trainer_of(rivals)
        trainer.load(*checkpoint.load(file))
    _, facts = trainer.state()
    first, second = (numbers["param_groups"][0] for numbers in facts["optimisers"])
    assert first["momentum"] == 0.9 and "betas" in second and second["lr"] == pytest.approx(3e-3 * (1 / 6) ** 0.9)
