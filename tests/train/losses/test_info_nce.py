"""Contrast with a queue: closed forms, an independent sum, who gets a gradient, and which rows do not count."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import unit
from torch import Tensor

from mona_train.losses.info_nce import info_nce, neighbour_nce

B, R, D, F = 3, 7, 5, 4


def none(rows: int = B) -> Tensor:
    return torch.zeros(rows, R, dtype=torch.bool)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_info_nce_is_the_sum_of_the_paper(temperature: float) -> None:
    q, k, queue, same = 3 * unit(B, D, seed=1), 2 * unit(B, D, seed=2), unit(R, D, seed=3), none()
    same[0, 2] = same[2, 0] = same[2, 6] = True
    total = 0.0
    for i in range(B):
        a, b = q[i] / q[i].norm(), k[i] / k[i].norm()
        others = [math.exp(float(a @ queue[j]) / temperature) for j in range(R) if not same[i, j]]
        own = math.exp(float(a @ b) / temperature)
        total -= math.log(own / (own + sum(others))) / B
    assert float(info_nce(q, k, queue, same, temperature=temperature)) == pytest.approx(total, rel=1e-5)


def test_info_nce_has_its_closed_form_and_falls_as_keys_come_nearer() -> None:
    axes = torch.eye(D + R)
    q, queue = axes[:B], axes[D:]
    right, wrong = (info_nce(q, k, queue, none(), temperature=0.5) for k in (q, q.roll(1, 0)))
    assert float(right) == pytest.approx(-math.log(math.e**2 / (math.e**2 + R)), rel=1e-5)
    assert float(wrong) == pytest.approx(math.log(1 + R), rel=1e-5)
    assert float(info_nce(q, q.roll(1, 0), queue, ~none(), temperature=0.5)) == 0  # nothing to be told from


def neighbours(q: Tensor, found: Tensor, queue: Tensor, places: Tensor, same: Tensor, k: int) -> float:
    losses = []
    for i in range(len(q)):
        others = [j for j in range(len(queue)) if not same[i, j]]
        nearest = sorted(others, key=lambda j: -float(torch.cosine_similarity(found[i], places[j], dim=0)))[:k]
        logits = {j: float(torch.cosine_similarity(q[i], queue[j], dim=0)) / 0.3 for j in others}
        total = sum(math.exp(value) for value in logits.values())
        if nearest:
            losses.append(-sum(math.log(math.exp(logits[j]) / total) for j in nearest) / len(nearest))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("k", [1, 3, 50])
def test_neighbours_are_found_in_one_space_and_compared_in_another(k: int) -> None:
    q, queue, same = 2 * unit(B, D, seed=1), unit(R, D, seed=2), none()
    found, places = 3 * unit(B, F, seed=3), unit(R, F, seed=4)
    same[0, :3], same[1] = True, True  # the second query has no other slice
    loss = neighbour_nce(q, found, queue, places, same, k=k, temperature=0.3)
    assert float(loss) == pytest.approx(neighbours(q, found, queue, places, same, k), rel=1e-5)


def test_only_queries_get_a_gradient_even_without_any_other_row() -> None:
    tensors = [t.requires_grad_() for t in (unit(B, D), unit(B, D, seed=1), unit(R, D, seed=2), unit(B, F), unit(R, F))]
    q, k, queue, found, places = tensors
    for same in (none(), ~none()):
        loss = info_nce(q, k, queue, same, temperature=0.2)
        loss = loss + neighbour_nce(q, found, queue, places, same, k=2, temperature=0.2)
        loss.backward()
        assert bool(torch.isfinite(q.grad).all()) and bool(torch.isfinite(loss))
        assert all(t.grad is None for t in (k, queue, found, places))
    assert float(loss.detach()) == 0


def test_half_precision_is_left_behind() -> None:
    q, k, queue = unit(B, D), unit(B, D, seed=1), unit(R, D, seed=2)
    expected = info_nce(q, k, queue, none(), temperature=0.01)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(info_nce(q, k, queue, none(), temperature=0.01), expected)
