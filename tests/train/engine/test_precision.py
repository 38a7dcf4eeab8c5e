"""Mixed precision is the networks' own affair: views, losses and weights stay in 32 bit."""

from __future__ import annotations

import pytest
import torch
from helpers.every_method import every
from helpers.small_runs import TASK, small_cache, small_config, small_split
from helpers.steps import calls_of
from lightning_fabric import Fabric

from mona_train.engine.trainer import Trainer
from mona_train.methods.registry import methods


def trainer_in(precision: str, method: str) -> Trainer:
    fabric = Fabric(devices=1, accelerator="cpu", precision=precision)
    return Trainer(small_config(method, precision=precision), small_cache(), small_split(), TASK, fabric)


@pytest.mark.parametrize("method", every(methods()))
def test_half_precision_trains_every_method(method: str) -> None:
    trainer = trainer_in("bf16-mixed", method)
    while not trainer.finished:
        losses = trainer.step()
        assert all(loss.dtype == torch.float32 and bool(loss.isfinite()) for loss in losses.values())
    assert all(p.dtype == torch.float32 and bool(p.isfinite().all()) for p in trainer.student.parameters())


def test_only_networks_compute_in_half_precision() -> None:
    """The first step: both students are the same, so both must see the same pixels, to the bit."""
    seen = []
    for precision in ("32-true", "bf16-mixed"):
        trainer = trainer_in(precision, "mona")
        trainer.number = trainer.spans[-1].first
        trainer.prepare_step()
        calls = calls_of(trainer.student["unet"])
        trainer.step()
        seen.append(calls)
    (exact, _), (half, _) = seen
    assert torch.equal(exact[0], half[0])  # the equivariance pass follows pseudo-labels, which may differ
    assert exact[1].logits.dtype == torch.float32 and half[1].logits.dtype == torch.bfloat16


def test_a_part_of_a_unet_is_computed_as_the_whole() -> None:
    trainer = trainer_in("bf16-mixed", "mona")
    trainer.prepare_step()
    network, images = trainer.student["unet"], torch.rand(2, 1, 32, 32)
    levels = network.train().encode(images)
    assert levels[-1].dtype == network.decode(levels).logits.dtype == torch.bfloat16
    assert network.eval().encode(images)[-1].dtype == torch.float32


def test_in_evaluation_mode_networks_compute_in_full() -> None:
    """What is validated, kept for parity and reported is what an exported model computes."""
    trainer = trainer_in("bf16-mixed", "mona")
    trainer.step()
    network = trainer.network
    images = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        assert network.train()(images).logits.dtype == torch.bfloat16
        found = network.eval()(images).logits
        expected = type(network).forward(network, images).logits
    assert found.dtype == torch.float32 and torch.equal(found, expected)
