"""The training loop: one seed, one result; a resumed run is the run; stages, teachers and optimisers keep apart.

Then what a whole run does with it: which network is kept, and what dying at any write or pressing Ctrl-C costs.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.small_runs import ADAMW, TASK, kept, slices_of, small_cache, small_config, small_split, train, trainer_of
from lightning_fabric import Fabric
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_infer.volume import Volume
from mona_train.config.schema import Config, Every, Optimiser
from mona_train.config.toml import with_value
from mona_train.data.case import Case
from mona_train.engine import session
from mona_train.engine.optimise import rate
from mona_train.engine.session import Interrupted, Session
from mona_train.engine.trainer import Trainer, spans
from mona_train.engine.validate import summary, validate
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step, Turn
from mona_train.methods.registry import methods
from mona_train.networks.unet import UNetOutput
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash
from mona_train.run.metrics import read

METHODS = ("mona", "mean-teacher", "unet-l")
SGD = Optimiser()
ACR_LOSSES = ["supervised", "unsupervised", "contrast", "equivariance", "neighbours"]


def state_hash(trainer: Trainer) -> tuple[str, str]:
    """All that a checkpoint holds: weights, teachers, banks, optimisers; and the numbers beside them."""
    tensors, facts = trainer.state()
    return weights_hash(tensors), json.dumps(facts)


@functools.cache
def uninterrupted(config: str, optimiser: Optimiser, seed: int = 0) -> list[tuple[str, str]]:
    """The state after each step."""
    trainer, found = trainer_of(small_config(config, optimiser=optimiser, seed=seed)), []
    while not trainer.finished:
        trainer.step()
        found.append(state_hash(trainer))
    return found


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in module.state_dict().items()}


# ---- one seed, one result


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_gives_one_result_and_another_seed_another(method: str) -> None:
    config = small_config(method, optimiser=ADAMW)
    first, second, other = (train(trainer_of(c)).student for c in (config, config, replace(config, seed=1)))
    assert weights_hash(first.state_dict()) == weights_hash(second.state_dict())
    assert weights_hash(first.state_dict()) != weights_hash(other.state_dict())


def test_two_threads_share_the_work_in_one_way_alone() -> None:
    torch.set_num_threads(2)
    try:
        first, second = (train(trainer_of(small_config(optimiser=ADAMW))).student for _ in range(2))
    finally:
        torch.set_num_threads(1)
    assert weights_hash(first.state_dict()) == weights_hash(second.state_dict())


def test_all_losses_of_both_stages_take_part_in_these_tests() -> None:
    """What the other tests show of `mona` would mean little if the banks were still empty at the end."""
    trainer = trainer_of(small_config())
    pretrained, finished = [{k: float(v) for k, v in train(trainer, n).step().items()} for n in (7, 15)]
    assert list(pretrained) == ["supervised", "global", "local"] and min(pretrained.values()) > 0
    assert list(finished) == ACR_LOSSES and min(finished.values()) > 0


# ---- a resumed run is the run


@pytest.mark.parametrize(
    ("method", "optimiser"),
    [("mona", ADAMW), ("mona", SGD), ("mean-teacher", ADAMW), ("unet-l", SGD)],
    ids=lambda v: v if isinstance(v, str) else v.kind,
)
def test_resumed_after_every_step_it_ends_in_the_same_state(method: str, optimiser: Optimiser, tmp_path: Path) -> None:
    """A new trainer for each step, the stage's last one too, handed nothing but the file of the one before."""
    config, file = small_config(method, optimiser=optimiser), tmp_path / "last.safetensors"
    trainer = trainer_of(config)
    for n, expected in enumerate(uninterrupted(method, optimiser), start=1):
        trainer.step()
        assert state_hash(trainer) == expected, f"after step {n}"
        checkpoint.save(file, *trainer.state())
        trainer = trainer_of(config)
        trainer.load(*checkpoint.load(file))
        assert state_hash(trainer) == expected, f"read back after step {n}"
    assert trainer.finished


@pytest.mark.parametrize("change", [{"steps": 4}, {"width": 0.5}, {"method": "unet-l"}], ids=str)
def test_a_checkpoint_of_another_run_is_refused_in_words(change: dict[str, Any]) -> None:
    taken = train(trainer_of(small_config()), 6).state()
    with pytest.raises(InputError, match="does not match this run"):
        trainer_of(small_config(**change)).load(*taken)


# ---- stages


def test_the_second_stage_starts_from_the_students_of_the_first() -> None:
    trainer = train(trainer_of(small_config(optimiser=ADAMW)), 8)
    assert trainer.span is not None and trainer.span.stage.name == "glcon"
    before = {name: copied(network) for name, network in trainer.student.items()}
    fresh = trainer_of(small_config(pretrain="none"))
    fresh.prepare_step()
    trainer.prepare_step()
    assert trainer.span.stage.name == "acr" and trainer.number == 8
    assert list(trainer.student) == ["unet", "projector", "predictor", "representation"]
    for name, network in trainer.student.items():
        if name in before:
            assert weights_hash(network.state_dict()) == weights_hash(before[name])
        assert weights_hash(network.state_dict()) != weights_hash(fresh.student[name].state_dict())
    assert list(trainer.teacher) == ["unet", "projector", "representation"]
    for name, network in trainer.teacher.items():
        assert weights_hash(network.state_dict()) == weights_hash(trainer.student[name].state_dict())
    assert not trainer.stage.bank.full and trainer.rate == ADAMW.lr  # its own memory and optimiser


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [("glcon", 0, 8), ("acr", 8, 16)]),
        ({"pretrain": "none"}, [("acr", 0, 16)]),
        ({"pretrain": "glcon"}, [("glcon", 0, 8), ("acr", 8, 16)]),
        ({"pretrain_share": 0.0}, [("acr", 0, 16)]),
        ({"pretrain_share": 0.25}, [("glcon", 0, 4), ("acr", 4, 16)]),
        ({"pretrain_share": 0.99}, [("glcon", 0, 15), ("acr", 15, 16)]),  # what the run is for gets a step
        ({"steps": 1, "pretrain_share": 0.9}, [("acr", 0, 1)]),
        ({"method": "mean-teacher"}, [("mean-teacher", 0, 16)]),
        ({"method": "unet-l", "pretrain": "glcon"}, [("glcon", 0, 8), ("supervised", 8, 16)]),
    ],
    ids=str,
)
def test_stages_share_the_steps(values: dict[str, Any], expected: list[tuple[str, int, int]]) -> None:
    assert [(s.stage.name, s.first, s.stop) for s in spans(small_config(**values))] == expected


def test_without_pretraining_every_step_is_fine_tuning() -> None:
    trainer = trainer_of(small_config(pretrain="none"))
    assert "contrast" in trainer.step()
    assert {*train(trainer, 7).step()} == {*ACR_LOSSES}


@pytest.mark.parametrize(
    ("principles", "losses", "idle"),
    [
        ("", [], {"projector", "predictor", "representation"}),
        ("tailness", ["contrast"], {"projector", "predictor"}),
        ("consistency", ["equivariance"], {"projector", "predictor", "representation"}),
        ("diversity", ["neighbours"], {"representation"}),
    ],
)
def test_a_principle_left_out_leaves_its_loss_and_its_heads(principles: str, losses: list[str], idle: set[str]) -> None:
    trainer = trainer_of(small_config(pretrain="none", settings={"acr.principles": principles}, steps=8))
    trainer.prepare_step()
    before = copied(trainer.student)
    assert list(train(trainer, 7).step()) == ["supervised", "unsupervised", *losses]
    moved = {k.partition(".")[0] for k, p in trainer.student.named_parameters() if not torch.equal(p, before[k])}
    assert moved == {"unet", "projector", "predictor", "representation"} - idle


def test_heads_that_do_not_fit_are_found_before_the_first_step() -> None:
    """Not at the hand-over, half a run later."""
    with pytest.raises(InputError, match="projector of glcon does not fit acr"):
        trainer_of(small_config(settings={"acr.norm": "ln"}))
    trainer_of(small_config(settings={"acr.norm": "ln"}, pretrain="none")).step()


def test_the_size_of_the_contrast_is_not_that_of_pre_training() -> None:
    trainer = trainer_of(small_config(settings={"acr.dim": "64"}))
    trainer.number = trainer.spans[-1].first
    trainer.step()


@pytest.mark.parametrize("method", METHODS)
def test_students_learn_and_teachers_follow(method: str) -> None:
    """Every parameter of a student changes within its stage; a teacher's move by EMA and by nothing else."""
    trainer = trainer_of(small_config(method, optimiser=ADAMW))
    for span in trainer.spans:
        trainer.prepare_step()
        first = copied(trainer.student)
        while trainer.number < span.stop:
            index, before = trainer.number - span.first, copied(trainer.teacher)
            trainer.step()
            decay = min(1 - 1 / (index + 1), 0.99) if method == "mean-teacher" else 0.99
            for name, teacher in trainer.teacher.named_parameters():
                student = trainer.student.get_parameter(name).detach().double()
                expected = decay * before[name].double() + (1 - decay) * student
                torch.testing.assert_close(teacher.double(), expected, atol=1e-8, rtol=2e-7)
                assert not teacher.requires_grad and teacher.grad is None
        assert [name for name, p in trainer.student.named_parameters() if torch.equal(p, first[name])] == []
        assert all(p.requires_grad for p in trainer.student.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_mixed_precision_keeps_weights_and_memory_in_full(method: str) -> None:
    """As the preset `gpu` trains, with the CPU's bfloat16."""
    config = small_config(method, optimiser=ADAMW, precision="bf16-mixed")
    fabric = Fabric(devices=1, accelerator="cpu", precision="bf16-mixed")
    trainer = Trainer(config, small_cache(), small_split(), TASK, fabric)
    while not trainer.finished:
        assert all(bool(loss.isfinite()) for loss in trainer.step().values())
    tensors, _ = trainer.state()
    assert {t.dtype for t in tensors.values()} <= {torch.float32, torch.int64}


def test_the_learning_rate_of_a_stage_is_its_own() -> None:
    """lr (1 - t/T)^0.9 from its first step, after a warm-up."""
    trainer, seen = trainer_of(small_config(optimiser=ADAMW)), []
    while not trainer.finished:
        trainer.step()
        seen.append(trainer.rate)
    warm = [min(1.0, (t + 1) / 2) * 2e-3 * (1 - t / 8) ** 0.9 for t in range(8)]
    assert seen == pytest.approx(warm * 2)
    assert rate(SGD, 0, 100) == 0.01 and rate(SGD, 99, 100) == pytest.approx(0.01 * 0.01**0.9)


def test_fine_tuning_may_have_a_learning_rate_of_its_own() -> None:
    config = with_value(small_config(optimiser=ADAMW), "acr.lr", "0.0005")
    trainer, seen = trainer_of(config), []
    while not trainer.finished:
        trainer.step()
        seen.append(trainer.rate)
    assert max(seen[:8]) > 1e-3 and max(seen[8:]) <= 5e-4
    assert trainer_of(with_value(config, "acr.lr", "none")).config == small_config(optimiser=ADAMW)


def test_momentum_may_be_zero() -> None:
    trainer_of(small_config(pretrain="none", optimiser=replace(SGD, momentum=0.0))).step()  # ACR's is Nesterov's


# ---- two optimisers


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

    def weights(self) -> dict[str, float]:
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


# ---- whole volumes


class Oracle(nn.Module):
    """Reads the class off the brightness that `slices_of` painted it with."""

    def forward(self, images: Tensor) -> UNetOutput:
        labels = (images * 65_535 / 18_666).floor().long().clamp(0, 3)[:, 0]
        return UNetOutput(F.one_hot(labels, 4).permute(0, 3, 1, 2).float(), [])


def case_of(patient: int, order: tuple[int, int, int] = (2, 1, 0)) -> Case:
    """Stored in any `order` of the axes slices, rows and columns; always the same hearts in the world."""
    images, labels = slices_of(patient)
    images[0, 0, :2], labels[0, 0, :2] = (0, 65_535), (0, 3)  # min-max then leaves the rest as it is
    affine = np.zeros((4, 4))
    affine[[2, 1, 0], np.argsort(order)] = 10.0, 1.5, 1.5
    affine[3, 3] = 1
    image, label = (Volume(v.transpose(order), affine) for v in (images, labels))
    return Case(f"heart{patient}", f"heart{patient}", (), lambda: image, lambda: label)


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 1, 2), (1, 0, 2)])
def test_a_network_that_knows_scores_1(order: tuple[int, int, int]) -> None:
    found = summary(validate(Oracle(), [case_of(n, order) for n in range(3)], TASK, torch.device("cpu")), TASK)
    assert found["dsc"] == 1 and found["asd"] == 0 and found["miss_rate"] == 0
    assert {name: entry["dsc"] for name, entry in found["classes"].items()} == {"RV": 1, "Myo": 1, "LV": 1}


def test_a_network_that_is_wrong_about_one_class_loses_that_class() -> None:
    class Blind(Oracle):
        def forward(self, images: Tensor) -> UNetOutput:
            logits = super().forward(images).logits
            logits[:, 2] = -1
            return UNetOutput(logits, [])

    network = Blind().train()
    found = summary(validate(network, [case_of(0)], TASK, torch.device("cpu")), TASK)
    assert not network.training
    assert {name: entry["dsc"] for name, entry in found["classes"].items()} == {"RV": 1, "Myo": 0, "LV": 1}


def test_a_network_is_given_the_window_and_what_is_outside_is_background() -> None:
    task, sizes = replace(TASK, window=(16, 32)), []

    class Watched(Oracle):
        def forward(self, images: Tensor) -> UNetOutput:
            sizes.append(tuple(images.shape[1:]))
            return super().forward(images)

    (scored,) = validate(Watched(), [case_of(0)], task, torch.device("cpu"))
    _, labels = slices_of(0)
    labels[0, 0, :2] = 0, 3
    assert {*sizes} == {(1, 16, 32)}
    for number, score in scored.scores.items():
        inside, whole = (labels[:, 8:24] == number).sum(), (labels == number).sum()
        assert score.dsc == pytest.approx(2 * inside / (inside + whole))


# ---- a whole run


def session_of(config: Config, folder: Path, *, val: int = 1, test: int = 0) -> Session:
    cases = [case_of(n) for n in range(val + test)]
    data: Any = SimpleNamespace(cache=small_cache(), split=small_split(), task=TASK, val=cases[:val], test=cases[val:])
    return Session(config, folder, data, Fabric(devices=1, accelerator="cpu"), quiet=True)


def scripted(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> list[tuple[str, str]]:
    """Validation that finds these scores in turn; returns what it was asked: the weights and the cases."""
    asked, left = [], iter(scores)

    def measure(network: nn.Module, cases: list[Case], *_: Any) -> list[Any]:
        asked.append((weights_hash(network.state_dict()), ",".join(case.name for case in cases)))
        return []

    def report(*_: Any) -> dict[str, Any]:
        return {"dsc": next(left), "asd": 1.0, "classes": {}}

    monkeypatch.setattr(session, "validate", measure)
    monkeypatch.setattr(session, "summary", report)
    monkeypatch.setattr(Session, "_picture", lambda *_: None)
    return asked


def test_the_best_network_is_chosen_by_validation_of_the_last_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """method 1.5.6: best validation DSC for every method, never by test cases; the first of equals."""
    # after steps 2 to 8 (pre-training) and 10 to 16; then last and best on validation cases, and the test cases
    config = replace(small_config(), every=Every(validate=2, log=4, save=16))
    scores = [0.9, 0.8, 0.95, 0.99, 0.2, 0.6, 0.6, 0.5, 0.5, 0.6, 0.7]
    asked = scripted(monkeypatch, scores)
    results = session_of(config, tmp_path, test=1).run()
    assert results["best"] == {"step": 12, "dsc": 0.6} and results["chosen"] == "best"
    assert results["validation"]["last"]["dsc"] == 0.5 and results["validation"]["best"]["dsc"] == 0.6
    assert results["test"]["dsc"] == 0.7
    weights, cases = zip(*asked, strict=True)
    assert cases == ("heart0",) * 10 + ("heart1",)  # test cases once, at the very end
    assert weights[8] == weights[7] and weights[9] == weights[10] == weights[5]
    tensors, facts = checkpoint.load(tmp_path / "checkpoints" / "best.safetensors")
    assert weights_hash(checkpoint.unpack("student.unet", tensors)) == weights[5] and facts["step"] == 12
    assert json.loads((tmp_path / "results.json").read_text()) == results


def test_without_validation_cases_the_last_network_is_it(tmp_path: Path) -> None:
    config = replace(small_config("unet-l", steps=4), every=Every(validate=2, log=2, save=2))
    run = session_of(config, tmp_path, val=0, test=1)
    results = run.run()
    assert (results["chosen"], results["best"]) == ("last", None) and "validation" not in results
    assert not (tmp_path / "checkpoints" / "best.safetensors").exists()
    assert results["test"] == summary(validate(run.trainer.network, [case_of(0)], TASK, torch.device("cpu")), TASK)


class Died(BaseException):
    """Nobody catches this."""


def dying(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, before: bool) -> None:
    """The process ends just before or just after the given call of a function."""
    real, calls = getattr(owner, name), itertools.count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        last = next(calls) == call
        result = None if last and before else real(*args, **kwargs)
        if last:
            raise Died
        return result

    patch.setattr(owner, name, wrapped)


def resumed(config: Config, folder: Path) -> Session:
    run = session_of(config, folder, test=1)
    run.resume()
    return run


def test_dying_between_any_two_files_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between the record of a validation, its picture, best.safetensors, last.safetensors and results.json."""
    config = replace(small_config("unet-l", steps=4), every=Every(validate=2, log=1, save=1))
    session_of(config, tmp_path / "whole", test=1).run()
    expected = kept(tmp_path / "whole")
    assert {"results.json", "metrics.jsonl", "checkpoints/best.safetensors"} < {*expected}
    # saves: last after 1; best, last after 2; last after 3; (best,) last after 4
    saves = [(checkpoint, "save", call, before) for call in (1, 2, 3, 5) for before in (True, False)]
    others = [(session, "montage", 2, True), (session, "validate", 2, True), (session, "validate", 4, False)]
    results = [(session, "write_text", 1, before) for before in (True, False)]
    for number, (owner, name, call, before) in enumerate([*saves, *others, *results]):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch, pytest.raises(Died):
            dying(patch, owner, name, call, before=before)
            session_of(config, folder, test=1).run()
        resumed(config, folder).run()
        assert kept(folder) == expected, f"died {'before' if before else 'after'} call {call} of {name}"


def test_files_half_written_by_a_killed_process_are_cleared_away(tmp_path: Path) -> None:
    config = small_config("unet-l", steps=2)
    left = [".0123abcd.run.toml", ".0123abcd.results.json", "pictures/.0123abcd.step-000002.png"]
    left += ["checkpoints/.0123abcd.last.safetensors", "checkpoints/.0123abcd.best.safetensors"]
    own = [".git", ".notes.txt", "pictures/mine.png"]
    for name in (*left, *own):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    resumed(config, tmp_path).run()
    assert not [name for name in left if (tmp_path / name).exists()]
    assert all((tmp_path / name).read_text() == "half" for name in own)


# ---- Ctrl-C


def test_the_first_ctrl_c_finishes_the_step_and_saves_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, handler = small_config("unet-l", steps=6), signal.getsignal(signal.SIGINT)
    session_of(config, tmp_path / "whole", test=1).run()
    run = session_of(config, tmp_path / "run", test=1)
    real = run.trainer.step

    def step() -> Any:
        if run.trainer.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real()

    monkeypatch.setattr(run.trainer, "step", step)
    with pytest.raises(Interrupted):
        run.run()
    _, facts = checkpoint.load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert facts["step"] == run.trainer.number == 3
    assert signal.getsignal(signal.SIGINT) is handler
    resumed(config, tmp_path / "run").run()
    assert kept(tmp_path / "run") == kept(tmp_path / "whole")


def test_the_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = small_config("unet-l", steps=6)
    run = session_of(config, tmp_path)
    finished = []

    def step() -> Any:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        finished.append(True)

    monkeypatch.setattr(run.trainer, "step", step)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert not finished and not (tmp_path / "checkpoints").exists()


def test_metrics_tell_of_both_stages_and_of_validations(tmp_path: Path) -> None:
    session_of(replace(small_config(), every=Every(validate=6, log=3, save=50)), tmp_path).run()
    records = list(read(tmp_path / "metrics.jsonl"))
    logged = [(r["step"], r["stage"]) for r in records if "stage" in r]
    # every 3rd step, and the last of each stage
    assert logged == [(n, "glcon") for n in (3, 6, 8)] + [(n, "acr") for n in (9, 12, 15, 16)]
    assert [r["step"] for r in records if "dsc" in r] == [6, 8, 12, 16]
