"""Min-max similarity: two halves of the labelled slices, four losses, and who learns from each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.small_runs import small_config, train, trainer_of
from helpers.steps import CLASSES, calls_of, following, seeded, stage_of, step_of, weights_at, with_gradient
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.losses.matched_pairs import matched, unmatched
from mona_train.losses.supervised import supervised
from mona_train.methods import mms
from mona_train.methods.base import Step
from mona_train.methods.mms import MMS, Projector, difference, halves


def step_with(stage: Any, rows: list[int], **values: Any) -> Step:
    step = step_of(stage, labelled=len(rows), size=32, **values)
    return replace(step, labelled=replace(step.labelled, rows=torch.tensor(rows)))


def test_losses_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = stage_of(MMS, temperature=0.3)
    step = step_with(stage, [4, 7, 2], unlabelled=2)
    called = {name: calls_of(network) for name, network in step.student.items()}
    labels: list[Tensor] = []
    monkeypatch.setattr(mms, "supervised", lambda out, given: (labels.append(given), supervised(out, given))[1])
    losses = stage.losses(step)
    ((seen, first),), ((also, second),) = called["unet"], called["second"]
    assert len(seen) == 2 + 2 and len(also) == 1 + 2 and torch.equal(seen[2:], also[1:])
    a, b = first.logits, second.logits
    assert [len(given) for given in labels] == [2, 1]
    torch.testing.assert_close(losses["supervised"], supervised(a[:2], labels[0]) + supervised(b[:1], labels[1]))

    p, q = a[2:].softmax(1), b[1:].softmax(1)
    expected = -(q * p.log()).sum(1).mean() - (p * q.log()).sum(1).mean()
    torch.testing.assert_close(losses["difference"], expected)

    for name, contrast, (x, y) in (
        ("similarity", matched, ("pixels", "second_pixels")),
        ("dissimilarity", unmatched, ("regions", "second_regions")),
    ):
        u, v = (called[head][0][1].flatten(2).transpose(1, 2) for head in (x, y))
        torch.testing.assert_close(losses[name], (contrast(u, v, 0.3) + contrast(v, u, 0.3)) / 2)
    torch.testing.assert_close(called["pixels"][0][0], a[2:])
    torch.testing.assert_close(called["second_pixels"][0][0], b[1:])
    torch.testing.assert_close(called["regions"][0][0], a[:2])
    torch.testing.assert_close(called["second_regions"][0][0], b[[0, 0]])  # one slice opposite two


def test_each_network_sees_its_own_half_over_the_whole_run() -> None:
    """Through the trainer, with the labelled stream's own order: no slice is ever given to both."""
    trainer = trainer_of(small_config("mms", steps=12))
    seen: tuple[set[int], set[int]] = (set(), set())
    for number in range(12):
        trainer.prepare_step()
        batch = trainer._labelled.batch(number)
        stage: Any = trainer.stage
        mine = halves(replace(step_of(stage, size=32), labelled=batch))
        assert torch.equal(mine[0], ~mine[1])
        for rows, own in zip(seen, mine, strict=True):
            rows |= set(batch.rows[own].tolist())
    assert seen == ({0, 2, 4, 6}, {1, 3, 5, 7})


@pytest.mark.parametrize(("rows", "taught"), [([2, 8], "unet"), ([1, 3], "second")])
def test_a_batch_may_have_nothing_for_one_of_them(rows: list[int], taught: str) -> None:
    stage = stage_of(MMS)
    step = step_with(stage, rows, unlabelled=2)
    losses = stage.losses(step)
    assert list(losses) == ["supervised", "difference", "similarity"]
    losses["supervised"].backward()
    assert with_gradient(step.student) == {taught}

    step = step_with(stage, rows, unlabelled=0)  # then it is not even asked
    called = {name: calls_of(step.student[name]) for name in ("unet", "second")}
    losses = stage.losses(step)
    assert list(losses) == ["supervised"] and {name for name, calls in called.items() if calls} == {taught}


def test_who_learns_from_what() -> None:
    stage = stage_of(MMS)
    step = step_with(stage, [0, 1], unlabelled=2)
    both = {"unet", "second"}
    for name, loss in stage.losses(step).items():
        step.student.zero_grad()
        loss.backward(retain_graph=True)
        heads = {"similarity": {"pixels", "second_pixels"}, "dissimilarity": {"regions", "second_regions"}}
        assert with_gradient(step.student) == both | heads.get(name, set()), name


def test_networks_that_agree_differ_by_nothing_that_can_be_learned() -> None:
    a, b = (torch.randn(2, CLASSES, 8, 8, generator=seeded(n)).requires_grad_() for n in (1, 2))
    (same,) = torch.autograd.grad(difference(a, a.detach()), a)
    assert float(same.abs().max()) < 1e-7
    first, second = torch.autograd.grad(difference(a, b), (a, b))
    torch.testing.assert_close(first, (a.softmax(1) - b.softmax(1)) / (2 * 64))  # the other's answer is a fixed target
    torch.testing.assert_close(second, -first)


def test_projectors_halve_the_size_at_each_level() -> None:
    maps = torch.rand(2, CLASSES, 32, 48)
    assert Projector(CLASSES, 2)(maps).shape == (2, 16, 8, 12)
    assert Projector(CLASSES, 3)(maps).shape == (2, 32, 4, 6)


def test_the_networks_start_different() -> None:
    step = step_of(stage_of(MMS), size=32)
    first, second = (step.student[name].head.weight for name in ("unet", "second"))
    assert not torch.equal(first, second)


def test_weights_are_quarters_or_what_was_set() -> None:
    names = ["supervised", "difference", "similarity", "dissimilarity"]
    assert weights_at(stage_of(MMS)) == weights_at(stage_of(MMS), 299) == dict.fromkeys(names, 0.25)
    chosen = {f"{name}_weight": float(n) for n, name in enumerate(names)}
    assert weights_at(stage_of(MMS, **chosen)) == {name: float(n) for n, name in enumerate(names)}
    with pytest.raises(InputError, match=r"mms\.temperature must be 0\.001 or greater"):
        stage_of(MMS, temperature=0.0)


def test_without_rows_the_batch_is_dealt_in_turn() -> None:
    step = following(step_of(stage_of(MMS), labelled=3, size=32))
    assert step.labelled.rows is None
    assert [mine.tolist() for mine in halves(step)] == [[True, False, True], [False, True, False]]


def test_either_can_predict() -> None:
    trainer = train(trainer_of(small_config("mms", steps=2, average=True)))
    assert trainer.stage.rivals == ("second",) and set(trainer.teacher) == {"unet", "second"}
    trainer.network.load_state_dict(trainer.answering["second"].state_dict())
