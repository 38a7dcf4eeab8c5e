"""Nearest neighbours (method 4.5) against a naive version: whose they are, and which rows do not count."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import seeded, unit
from torch import Tensor

from mona_train.losses.neighbours import nearest_neighbours
from mona_train.methods.bank import Bank


def bank_of(rows: Tensor, tags: Tensor | None = None) -> Bank:
    bank = Bank(len(rows), tuple(rows.shape[1:]))
    bank.add(rows, None if tags is None else tags[:, None])
    return bank


def naive_neighbours(u: Tensor, v: Tensor, z: Tensor, tags: list[int], bank_tags: list[int], k: int = 5) -> float:
    means = []
    for b in range(len(u)):
        others = [j for j in range(len(z)) if not (tags[b] == bank_tags[j] and tags[b] >= 0)]
        near = sorted(others, key=lambda j: float(2 - 2 * v[b] @ z[j]))[:k]
        if near:
            means.append(sum(float(2 - 2 * u[b] @ z[j]) for j in near) / len(near))
    return sum(means) / max(len(means), 1)


@pytest.mark.parametrize("slices", [1000, 12, 6])
def test_neighbours_are_the_teachers_and_the_distance_is_the_students(slices: int) -> None:
    u, v, z = unit(6, 16, seed=1), unit(6, 16, seed=2), unit(36, 16)
    tags = torch.randint(-1, slices, (6,), generator=seeded(3))
    bank_tags = torch.randint(-1, slices, (36,), generator=seeded(4))
    found = nearest_neighbours(u, v, bank_of(z, bank_tags), tags[:, None])
    assert float(found) == pytest.approx(naive_neighbours(u, v, z, tags.tolist(), bank_tags.tolist()), rel=1e-5)
    assert (
        abs(float(found) - naive_neighbours(v, u, z, tags.tolist(), bank_tags.tolist())) > 1e-3
    )  # swapped: difference 3
    untagged = nearest_neighbours(u, v, bank_of(z, bank_tags))
    assert float(untagged) == pytest.approx(naive_neighbours(u, v, z, [-1] * 6, [-1] * 36), rel=1e-5)


def test_neighbours_do_not_depend_on_the_length_of_an_embedding() -> None:
    u, v, bank = unit(6, 16, seed=1), unit(6, 16, seed=2), bank_of(unit(36, 16))
    torch.testing.assert_close(nearest_neighbours(7 * u, 0.1 * v, bank), nearest_neighbours(u, v, bank))


def test_the_same_slice_is_no_neighbour() -> None:
    e = torch.eye(8)
    bank = bank_of(e, torch.arange(8))
    v, u = e[:1], e[1:2]
    assert (
        float(nearest_neighbours(u, v, bank, torch.tensor([5])[:, None], k=1)) == 2
    )  # row 0 is nearest to v, and far from u
    found = nearest_neighbours(e[:1], v, bank, torch.tensor([0])[:, None], k=1)
    assert float(found) == 2  # row 0 would give 0
    unknown = nearest_neighbours(e[:1], v, bank_of(e), torch.tensor([-1])[:, None], k=1)
    assert float(unknown) == 0  # two unknowns are not the same slice


def test_fewer_rows_than_neighbours() -> None:
    """One image has two other rows, one has none, one all: each takes what there is."""
    z, u, v = unit(6, 16), unit(3, 16, seed=1).requires_grad_(), unit(3, 16, seed=2)
    bank_tags = torch.tensor([3, 3, 3, 3, 8, 9])
    found = nearest_neighbours(u, v, bank_of(z, bank_tags), torch.tensor([3, 3, 7])[:, None], k=5)
    expected = naive_neighbours(u.detach(), v, z, [3, 3, 7], bank_tags.tolist())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    none = nearest_neighbours(u[:1], v[:1], bank_of(z, torch.full((6,), 3)), torch.tensor([3])[:, None])
    assert float(none.detach()) == 0
    (found + none).backward()
    assert u.grad.isfinite().all() and (u.grad.abs().sum(1) > 0).all()
    assert float(nearest_neighbours(u, v, bank_of(z), k=50).detach()) == pytest.approx(
        naive_neighbours(u.detach(), v, z, [-1] * 3, [-1] * 6, k=6), rel=1e-5
    )
    alone = nearest_neighbours(u, v, bank_of(z, torch.full((6,), 3)), torch.tensor([3, 8, 8])[:, None])
    expected = naive_neighbours(u.detach(), v, z, [3, 8, 8], [3] * 6)
    assert float(alone.detach()) == pytest.approx(expected, rel=1e-5)  # the first is not averaged in as a zero


def test_neighbours_give_a_gradient_to_the_student_alone() -> None:
    u, v = unit(3, 64, seed=1).requires_grad_(), unit(3, 64, seed=2).requires_grad_()
    bank = bank_of(unit(36, 64))
    rows = bank.kept.requires_grad_()
    nearest_neighbours(u, v, bank).backward()
    assert (u.grad.abs().sum(1) > 0).all()
    assert v.grad is None
    assert rows.grad is None


def test_neighbours_are_float32_under_autocast_and_wait_for_the_bank() -> None:
    u, v, z = unit(6, 64, seed=1), unit(6, 64, seed=2), unit(36, 64)
    with torch.autocast("cpu", torch.bfloat16):
        inside = nearest_neighbours(u, v, bank_of(z))
    assert torch.equal(inside, nearest_neighbours(u, v, bank_of(z)))
    with pytest.raises(RuntimeError, match="check `full` first"):
        nearest_neighbours(u, v, Bank(36, (64,)))
    with pytest.raises(ValueError, match=r"tags \(B, n\), found \(6, 64\), \(6, 64\), \(5,\)"):
        nearest_neighbours(u, v, bank_of(z), torch.arange(5))


def test_an_image_that_shows_two_slices_has_neither_for_a_neighbour() -> None:
    """A CutMixed image is half its partner: rows of either slice would be the image itself."""
    e = torch.eye(4)
    bank = Bank(4, (4,), slices=2)
    bank.add(e, torch.tensor([[1, 2], [3, 9], [4, 5], [6, 7]]))
    v = unit(1, 4, seed=1).abs() + torch.tensor([[3.0, 2.0, 1.0, 0.0]])  # nearest first: rows 0, 1, 2, 3
    for shown, nearest in (([8, 8], 0), ([2, 8], 1), ([2, 3], 2), ([9, 1], 2)):
        found = nearest_neighbours(e[nearest : nearest + 1], v, bank, torch.tensor([shown]), k=1)
        assert float(found) == pytest.approx(0, abs=1e-6)


def naive_repelling(u: Tensor, v: Tensor, z: Tensor, tags: list[int], bank_tags: list[int], k: int) -> float:
    means = []
    for b in range(len(u)):
        others = [j for j in range(len(z)) if tags[b] != bank_tags[j]]
        near = sorted(others, key=lambda j: -float(v[b] @ z[j]))[:k]
        similar = {j: math.exp(float(u[b] @ z[j]) / 0.1) for j in others}
        away = sum(similar[j] for j in others if j not in near)
        terms = [-math.log(similar[j] / (similar[j] + away)) for j in near]
        if terms:
            means.append(sum(terms) / len(terms))
    return sum(means) / max(len(means), 1)


@pytest.mark.parametrize("k", [5, 1, 40])
def test_repelling_rows_that_are_no_neighbours(k: int) -> None:
    u, v, z = unit(6, 16, seed=1), unit(6, 16, seed=2), unit(36, 16)
    tags, bank_tags = torch.arange(6), torch.arange(36) % 12
    found = nearest_neighbours(u, v, bank_of(z, bank_tags), tags[:, None], k=k, repel=True)
    expected = naive_repelling(u, v, z, tags.tolist(), bank_tags.tolist(), k)
    assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_one_embedding_for_all_slices_pleases_only_without_repelling() -> None:
    same = unit(1, 16).expand(36, 16)
    assert float(nearest_neighbours(same[:6], same[:6], bank_of(same))) == pytest.approx(0, abs=1e-5)
    collapsed = float(nearest_neighbours(same[:6], same[:6], bank_of(same), repel=True))
    assert collapsed == pytest.approx(math.log(1 + 31), rel=1e-4)
    z = unit(36, 64)
    apart = float(nearest_neighbours(z[:6], z[:6], bank_of(z), k=1, repel=True))
    assert apart < 0.2 * collapsed


def test_where_all_rows_are_neighbours_repelling_has_no_gradient_and_no_nan() -> None:
    u = unit(3, 16, seed=1).requires_grad_()
    loss = nearest_neighbours(u, unit(3, 16, seed=2), bank_of(unit(4, 16)), k=5, repel=True)
    loss.backward()
    assert float(loss.detach()) == 0 and not u.grad.any()
