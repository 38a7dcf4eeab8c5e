"""Contrast of pairs against plain loops; who gets a gradient; what is smallest and largest."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import seeded, unit

from mona_train.losses.matched_pairs import matched, unmatched


def looped(rows: torch.Tensor, keys: torch.Tensor, temperature: float, *, pairs: bool) -> float:
    total = 0.0
    for row, them in zip(rows.tolist(), keys.tolist(), strict=True):
        for i, a in enumerate(row):
            cosines = [
                sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b) / temperature
                for b in them
            ]
            own = cosines[i] if pairs else 0.0
            others = sum(math.exp(c) for j, c in enumerate(cosines) if j != i)
            total += math.log(math.exp(own) + others) - own
    return total / rows[..., 0].numel()


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_both_are_their_definition(temperature: float) -> None:
    rows, keys = (3 * torch.randn(2, 5, 3, generator=seeded(n), dtype=torch.float64) for n in (1, 2))
    for loss, pairs in ((matched, True), (unmatched, False)):
        expected = looped(rows, keys, temperature, pairs=pairs)
        assert float(loss(rows, keys, temperature)) == pytest.approx(expected, rel=1e-5)


def test_matched_is_small_for_pairs_and_large_for_strangers() -> None:
    rows = torch.eye(6)
    assert float(matched(rows, rows, 0.07)) == pytest.approx(math.log1p(5 * math.exp(-1 / 0.07)), rel=1e-3, abs=1e-7)
    assert float(matched(rows, rows.roll(1, 0), 0.07)) > 14
    assert float(matched(torch.ones(6, 3), torch.ones(6, 3), 0.07)) == pytest.approx(math.log(6))


def test_unmatched_falls_as_others_become_unlike() -> None:
    same, opposite = torch.ones(4, 3), -torch.ones(4, 3)
    assert float(unmatched(same, same, 0.5)) == pytest.approx(math.log(1 + 3 * math.exp(2)))
    assert float(unmatched(same, opposite, 0.5)) == pytest.approx(math.log(1 + 3 * math.exp(-2)))
    assert float(unmatched(torch.eye(4), torch.eye(4), 0.5)) == pytest.approx(math.log(4))  # the pair's own is left out


def test_keys_get_no_gradient() -> None:
    for loss in (matched, unmatched):
        rows, keys = unit(4, 3, seed=1).requires_grad_(), unit(4, 3, seed=2).requires_grad_()
        loss(rows, keys, 0.5).backward()
        assert bool(rows.grad.any()) and keys.grad is None


def test_sides_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected rows and keys \(..., N, D\), found \(4, 3\) and \(5, 3\)"):
        matched(torch.ones(4, 3), torch.ones(5, 3), 0.5)
