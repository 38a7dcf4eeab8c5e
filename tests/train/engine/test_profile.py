"""`--profile` times a step without changing it, and its parts add up."""

from __future__ import annotations

import pytest
import torch
from helpers.every_method import every
from helpers.small_runs import small_config, train, trainer_of

from mona_train.engine.profile import PASS, Clock, profile, watched
from mona_train.engine.trainer import Trainer
from mona_train.methods.registry import methods

PARTS = {
    "mona": {
        "student pass",
        "student, 2. pass",
        "teacher pass",
        "augmentation",
        "supervised",
        "unsupervised",
        "tailness",
        "neighbours",
        "equivariance",
        "optimiser",
        *(f"{loss}, backward" for loss in ("supervised", "unsupervised", "contrast", "equivariance", "neighbours")),
    },
    "glcon": {
        "student pass",
        "teacher pass",
        "augmentation",
        "supervised",
        "relational",
        "local_windows",
        "optimiser",
        *(f"{loss}, backward" for loss in ("supervised", "global", "local")),
    },
}

PASSES = {"mona": 2, "cps": 2, "mms": 2, "dct": 2}  # of the student, with a gradient


def late(method: str) -> Trainer:
    """Just before its last step: every bank is full by then.  SGD: Adam would make much of rounding."""
    trainer = trainer_of(small_config(method))
    trainer = train(trainer, trainer.config.steps - 1)
    trainer.prepare_step()
    return trainer


@pytest.mark.parametrize("method", every(methods()))
def test_a_timed_step_is_the_same_step(method: str) -> None:
    plain, timed = late(method), late(method)
    plain.step()
    clock = Clock(timed.device)
    with watched(timed, clock):
        timed.step()
    assert clock.seconds.keys() >= PARTS.get(method, {"student pass", "augmentation", "supervised", "optimiser"})
    for a, b in zip(plain.student.parameters(), timed.student.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)  # gradients are added up in another order
    timed.number -= 1
    timed.step()  # and afterwards nothing is watched
    assert sum(name.startswith("student") for name in clock.seconds) == PASSES.get(method, 1)


def test_the_parts_add_up_to_the_step() -> None:
    parts = profile(trainer_of(small_config()))
    assert all(seconds >= 0 for name, seconds in parts.items() if name != "other")
    assert sum(name.endswith(PASS) for name in parts) == 3


def test_of_nested_parts_the_outermost_counts() -> None:
    clock = Clock(torch.device("cpu"))
    with clock.part("outer"), clock.part("inner"):
        pass
    assert list(clock.seconds) == ["outer"]
