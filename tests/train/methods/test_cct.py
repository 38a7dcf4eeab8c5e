"""Cross-consistency: four answers fit the labels, and on unlabelled slices the three auxiliary ones agree with one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.small_runs import TASK, small_cache, small_config, small_split
from helpers.steps import calls_of, stage_of, step_of, weights_at, with_gradient, without_dropout
from lightning_fabric import Fabric

from mona_infer.errors import InputError
from mona_train.engine.trainer import Trainer
from mona_train.losses.supervised import supervised
from mona_train.methods import several_answers
from mona_train.methods.base import Step
from mona_train.methods.cct import CrossConsistency
from mona_train.methods.registry import stages_of


def alike(step: Step) -> None:
    """Auxiliary decoders with the weights of the U-Net's, and nothing perturbed."""
    unet, cross = step.student["unet"], step.student["cross_decoders"]
    for decoder in cross.decoders:
        decoder.up.load_state_dict(unet.decoder.state_dict())
        decoder.head.load_state_dict(unet.head.state_dict())
    without_dropout(unet)
    cross.perturbations.eval()


def test_losses_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(CrossConsistency)
    step = step_of(stage, index=150, size=32, labelled=2, unlabelled=4)
    main, cross = calls_of(step.student["unet"]), calls_of(step.student["cross_decoders"])
    judged: list[torch.Tensor] = []
    monkeypatch.setattr(
        several_answers, "supervised", lambda logits, labels: judged.append(labels) or supervised(logits, labels)
    )
    losses = stage.losses(step)
    assert len(main) == len(cross) == 1  # one pass of the encoder for all
    outputs = [main[0][1].logits, *cross[0][1]]
    assert [tuple(logits.shape) for logits in outputs] == [(6, 4, 32, 32)] * 4
    terms = [F.cross_entropy(logits[:2], judged[0]) for logits in outputs]
    dice = [supervised(logits[:2], judged[0]) - F.cross_entropy(logits[:2], judged[0]) for logits in outputs]
    torch.testing.assert_close(losses["supervised"], (sum(terms) + sum(dice)) / 8)
    p = [logits[2:].softmax(1) for logits in outputs]
    expected = sum((p[0] - other).square().mean() for other in p[1:]) / 3
    torch.testing.assert_close(losses["consistency"], expected)
    for level, encoded in zip(cross[0][0], (4, 8, 16, 32, 64), strict=True):
        assert level.shape[1] == encoded


def test_the_loss_is_0_only_where_all_decoders_agree() -> None:
    stage = stage_of(CrossConsistency)
    step = step_of(stage, index=150, size=32)
    alike(step)
    assert stage.losses(step)["consistency"].item() < 1e-12
    for perturbed in step.student["cross_decoders"].perturbations:
        perturbed.train()
        assert stage.losses(step)["consistency"].item() > 1e-8
        perturbed.eval()


@pytest.mark.parametrize("detach", [False, True])
def test_every_network_learns_from_agreement_and_the_main_decoder_unless_detached(detach: bool) -> None:
    stage = stage_of(CrossConsistency, detach=detach)
    step = step_of(stage, index=150, size=32)
    stage.losses(step)["consistency"].backward()
    assert with_gradient(step.student) == {"unet", "cross_decoders"}
    unet = step.student["unet"]
    assert all(bool(decoder.head.weight.grad.any()) for decoder in step.student["cross_decoders"].decoders)
    assert bool(unet.encoder[0][0].weight.grad.any())
    assert (unet.head.weight.grad is None) == detach and (unet.decoder[0].narrow.weight.grad is None) == detach


def test_settings_reach_the_networks_and_the_weight() -> None:
    assert stages_of("cct") == (CrossConsistency,) and CrossConsistency.averaged == ()
    stage = stage_of(CrossConsistency, noise=0.05, dropout=0.15, consistency_weight=0.4)
    noise, dropout, attention = stage.networks()["cross_decoders"].perturbations
    assert (noise.span, dropout.p, attention.low, attention.high) == (0.05, 0.15, 0.7, 0.9)
    assert stage_of(CrossConsistency).networks()["cross_decoders"].perturbations[0].span == 0.3
    assert stage_of(CrossConsistency).networks()["cross_decoders"].perturbations[1].p == 0.3
    for index, share in ((0, 0.0), (150, 0.5), (299, 199 / 200)):
        assert weights_at(stage, index)["consistency"] == pytest.approx(0.4 * math.exp(-5 * (1 - share) ** 2))
    with pytest.raises(InputError, match=r"cct\.dropout must be from 0 to 1"):
        stage_of(CrossConsistency, dropout=1.5)


def test_in_half_precision_the_levels_and_the_decoders_are_in_half_precision_too() -> None:
    fabric, config = (
        Fabric(devices=1, accelerator="cpu", precision="bf16-mixed"),
        small_config("cct", precision="bf16-mixed"),
    )
    trainer = Trainer(config, small_cache(), small_split(), TASK, fabric)
    trainer.prepare_step()
    cross = calls_of(trainer.student["cross_decoders"])
    assert all(loss.dtype == torch.float32 for loss in trainer.step().values())
    levels, answers = cross[0]
    assert {t.dtype for t in (*levels, *answers)} == {torch.bfloat16}
