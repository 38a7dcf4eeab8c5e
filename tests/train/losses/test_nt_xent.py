"""NT-Xent: written out in loops, closed forms, rows that do not count, and what gets a gradient."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import seeded, unit
from torch import Tensor

from mona_train.losses.nt_xent import nt_xent


def written_out(rows: Tensor, positives: Tensor, t: float, negatives: Tensor | None = None) -> float:
    count, means = len(rows), []
    s = [[float(torch.cosine_similarity(a, b, dim=0)) / t for b in rows] for a in rows]
    for i in range(count):
        terms = []
        for j in (j for j in range(count) if j != i and positives[i, j]):
            others = [k for k in range(count) if k != i]
            if negatives is not None:
                others = [j, *(k for k in others if negatives[i, k])]
            terms.append(math.log(sum(math.exp(s[i][k]) for k in others)) - s[i][j])
        if terms:
            means.append(sum(terms) / len(terms))
    return sum(means) / len(means)


def drawn(count: int, seed: int) -> Tensor:
    return torch.rand(count, count, generator=seeded(seed)) < 0.4


@pytest.mark.parametrize("t", [0.1, 0.5, 2.0])
def test_it_is_what_the_equation_says(t: float) -> None:
    rows, positives = 3 * torch.randn(7, 5, generator=seeded(1)), drawn(7, 2)
    positives[3] = False  # no anchor, but one of the others
    negatives = drawn(7, 3) & ~positives
    found = nt_xent(rows, positives, temperature=t)
    torch.testing.assert_close(float(found), written_out(rows, positives, t))
    found = nt_xent(rows, positives, temperature=t, negatives=negatives)
    torch.testing.assert_close(float(found), written_out(rows, positives, t, negatives), rtol=1e-5, atol=1e-5)


def test_closed_forms() -> None:
    rows = torch.eye(4)[[0, 0, 1, 1]]  # two pairs at right angles
    pairs = rows @ rows.T > 0
    expected = math.log(1 + 2 * math.exp(-2))  # s+ = 1, twice s- = 0, t = 0.5
    assert float(nt_xent(rows, pairs, temperature=0.5)) == pytest.approx(expected)
    assert float(nt_xent(rows, pairs, temperature=0.5, negatives=~pairs)) == pytest.approx(expected)
    assert float(nt_xent(rows, ~pairs, temperature=0.5)) > expected + 1  # positives must be near
    same = torch.ones(5, 3)  # a constant network: one of four others
    assert float(nt_xent(same, torch.ones(5, 5) > 0, temperature=0.1)) == pytest.approx(math.log(4))


def test_with_negatives_positives_do_not_compete() -> None:
    rows = torch.eye(3)[[0, 0, 0, 1]]
    pairs = rows @ rows.T > 0
    alone = math.log(1 + math.exp(-10))
    assert float(nt_xent(rows, pairs, temperature=0.1, negatives=~pairs)) == pytest.approx(alone, rel=1e-3)
    assert float(nt_xent(rows, pairs, temperature=0.1)) == pytest.approx(math.log(2), rel=1e-3)


def test_the_diagonal_does_not_count() -> None:
    rows, positives = unit(6, 4), drawn(6, 5)
    on, off = positives.clone().fill_diagonal_(True), positives.clone().fill_diagonal_(False)
    for negatives in (None, on, off):
        values = [float(nt_xent(rows, p, temperature=0.2, negatives=negatives)) for p in (on, off)]
        assert values[0] == values[1]
    assert nt_xent(rows, off, temperature=0.2, negatives=on) == nt_xent(rows, off, temperature=0.2, negatives=off)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("given", [False, True])
def test_without_positives_the_loss_and_its_gradient_are_0(count: int, given: bool) -> None:
    rows = unit(count, 4).requires_grad_()
    none = torch.zeros(count, count, dtype=torch.bool)
    loss = nt_xent(rows, none | torch.eye(count, dtype=torch.bool), temperature=0.1, negatives=none if given else None)
    loss.backward()
    assert loss == 0 and not rows.grad.any() and not rows.grad.isnan().any()


def test_it_is_computed_in_32_bit() -> None:
    rows, positives = torch.randn(8, 16, generator=seeded(4)), drawn(8, 5)
    expected = nt_xent(rows, positives, temperature=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(nt_xent(rows, positives, temperature=0.1), expected)
    assert nt_xent(rows.bfloat16(), positives, temperature=0.1).dtype == torch.float32


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"positives and negatives \(N, N\), found \(3, 4\), \(3, 2\)"):
        nt_xent(unit(3, 4), torch.ones(3, 2) > 0, temperature=0.1)
