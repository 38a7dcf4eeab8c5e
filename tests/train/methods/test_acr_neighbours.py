"""L_nn as ACR wires it (method 4.5, decision 6), against a bank kept by hand: a list of rows and the slices they show.

Which two slices a mixed image shows is read off its pixels, not taken from the code that mixed them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import calls_of, seeded, stage_of
from helpers.told import by_hand, slices, told_step, turned
from torch import Tensor

from mona_train.data.stream import UnlabelledBatch
from mona_train.engine.distributed import SingleProcess
from mona_train.methods.acr import ACR
from mona_train.methods.base import Step

POOL = 12  # slices in the data set, so that the same ones come again
BANK = 14  # rows: not a multiple of the batch
LABELLED, UNLABELLED = 2, 3


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(monkeypatch)


def next_step(step: Step, pool: Tensor, number: int) -> Step:
    rows = torch.randperm(POOL, generator=seeded(number))[:UNLABELLED]
    return replace(step, number=number, unlabelled=UnlabelledBatch(pool[rows], rows), generator=seeded(number))


def shown_by(image: Tensor, pool: Tensor) -> set[int]:
    """Slices of the pool that make up a good part of an image; chance alone makes a 64th of the pixels agree."""
    return {n for n, other in enumerate(pool) if float((image == turned(other)).float().mean()) > 0.25}


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).square().sum())


@pytest.mark.parametrize("k", [5, 2])
def test_the_student_moves_towards_the_teachers_neighbours_that_show_other_slices(k: int) -> None:
    """u = norm(h'(h(student))), v = norm(h(teacher)), both of the unlabelled images alone; the k = 5 rows nearest to v
    that share no slice with the image; the mean of |u - z|^2; then v enters the bank."""
    settings: dict[str, Any] = {} if k == 5 else {"neighbours": k}
    stage = stage_of(ACR, principles=("diversity",), bank=BANK, **settings)
    step, pool = told_step(stage, LABELLED, UNLABELLED), slices(POOL, seed=20)
    unet, predictor = calls_of(step.student["unet"]), calls_of(step.student["predictor"])
    projector = calls_of(step.teacher["projector"])
    bank: deque[tuple[Tensor, set[int]]] = deque(maxlen=BANK)
    for number in range(9):
        found = stage.losses(next_step(step, pool, number))
        images = unet[-1][0][LABELLED:]
        u, v = (F.normalize(calls[-1][1].detach()[LABELLED:], dim=1) for calls in (predictor, projector))
        shown = [shown_by(image, pool) for image in images]
        assert len(projector) == number + 1 and all(len(both) == 2 for both in shown)
        if len(bank) < BANK:
            assert "neighbours" not in found
        else:
            means = []
            for n in range(UNLABELLED):
                others = [row for row, slices_of_row in bank if not slices_of_row & shown[n]]
                assert len(others) > k
                nearest = sorted(others, key=lambda row, n=n: distance(v[n], row))[:k]
                means.append(sum(distance(u[n], row) for row in nearest) / k)
            expected = sum(means) / UNLABELLED
            assert float(found["neighbours"].detach()) == pytest.approx(expected, rel=1e-5)
        bank.extend(zip(v, shown, strict=True))
    assert number >= 6 and len(bank) == BANK
    slots = {frozenset(tags.tolist()) for tags in stage.bank.tags}
    assert slots == {frozenset(both) for _, both in bank}


def test_rows_and_slices_of_every_process_enter_the_bank() -> None:
    class Two(SingleProcess):
        rank, size = 0, 2

        def gather(self, rows: Tensor) -> Tensor:
            return torch.cat([rows, -rows]).detach()  # of slices that nobody knows, being negative

    stage = stage_of(ACR, principles=("diversity",), bank=6)
    step = replace(told_step(stage, LABELLED, UNLABELLED), processes=Two())
    stage.losses(step)
    assert stage.bank.full
    torch.testing.assert_close(stage.bank.rows[3:], -stage.bank.rows[:3])
    assert torch.equal(stage.bank.tags[3:], -stage.bank.tags[:3])
    assert stage.bank.tags[:3].tolist() == [[0, 1], [1, 2], [2, 0]]
