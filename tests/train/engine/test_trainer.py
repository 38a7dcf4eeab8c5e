"""The training loop: one seed, one result; a resumed run is the run; stages and teachers keep apart."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.small_runs import ADAMW, TASK, small_cache, small_config, small_split, train, trainer_of
from helpers.trainers import SGD, copied, state_hash
from lightning_fabric import Fabric

from mona_infer.errors import InputError
from mona_train.config.schema import Optimiser
from mona_train.config.toml import with_value
from mona_train.engine.optimise import rate
from mona_train.engine.trainer import Trainer, spans
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash

METHODS = ("mona", "mean-teacher", "unet-l")
ACR_LOSSES = ["supervised", "unsupervised", "contrast", "equivariance", "neighbours"]


@functools.cache
def uninterrupted(config: str, optimiser: Optimiser, seed: int = 0) -> list[tuple[str, str]]:
    """The state after each step."""
    trainer, found = trainer_of(small_config(config, optimiser=optimiser, seed=seed)), []
    while not trainer.finished:
        trainer.step()
        found.append(state_hash(trainer))
    return found


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
