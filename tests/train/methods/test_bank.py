"""The bank: first in, first out whatever the batch, nothing to see before it is full, and all of it saved."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from helpers.steps import seeded
from torch import Tensor, nn

from mona_train.methods.bank import UNKNOWN, Bank


def rows_of(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=seeded(seed))


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("batches", [[6] * 9, [5] * 15, [7, 7, 3, 1, 30, 8], [36, 36], [50], [10, 80, 5], [1] * 40])
def test_first_in_first_out(batches: list[int]) -> None:
    bank, last = Bank(36, (4,)), deque[tuple[int, Tensor]](maxlen=36)
    came = 0
    for n, count in enumerate(batches):
        rows, tags = rows_of(count, 4, seed=n), torch.arange(came, came + count)
        bank.add(rows, tags[:, None])
        last.extend(zip(tags.tolist(), unit(rows), strict=True))
        came += count
        assert bank.full == (came >= 36)
        if bank.full:
            slots = {tag: slot for slot, tag in enumerate(bank.tags[:, 0].tolist())}
            assert set(slots) == {tag for tag, _ in last}  # the 36 that came last, each once
            for tag, row in last:
                torch.testing.assert_close(bank.rows[slots[tag]], row)
                assert slots[tag] == tag % 36  # a ring: a row stays where it is until it is the oldest
    assert bank.full


def test_nobody_looks_before_it_is_full() -> None:
    bank = Bank(36, (8,))
    for n in range(5):
        bank.add(rows_of(7, 8, seed=n))
        assert not bank.full
        with pytest.raises(RuntimeError, match=f"the bank has {7 * n + 7} of 36 rows"):
            _ = bank.rows
    bank.add(rows_of(1, 8))
    assert bank.full and len(bank) == 36
    torch.testing.assert_close(bank.rows.norm(dim=-1), torch.ones(36))  # so no zero row either


def test_crops_are_of_length_one_each() -> None:
    bank = Bank(3, (36, 512))
    rows = 5 * rows_of(4, 36, 512)
    bank.add(rows)
    torch.testing.assert_close(bank.rows, unit(rows)[[3, 1, 2]])


def test_tags_go_with_their_rows_and_are_unknown_otherwise() -> None:
    bank = Bank(4, (2,))
    bank.add(rows_of(3, 2), torch.tensor([7, 8, 9])[:, None])
    bank.add(rows_of(2, 2))
    assert bank.tags[:, 0].tolist() == [UNKNOWN, 8, 9, UNKNOWN] and bank.tags.dtype == torch.int64


def test_a_saved_bank_goes_on_as_if_nothing_had_happened() -> None:
    """Inside another module, as in a stage; through tensors alone."""
    going, resumed = nn.ModuleDict({"bank": Bank(36, (4,))}), nn.ModuleDict({"bank": Bank(36, (4,))})
    for n in range(6):
        going["bank"].add(rows_of(7, 4, seed=n), torch.arange(7)[:, None])
    assert {k: v.shape for k, v in going.state_dict().items()} == {
        "bank.kept": (36, 4), "bank.tags": (36, 1), "bank.written": ()
    }  # fmt: skip
    resumed.load_state_dict({name: t.clone() for name, t in going.state_dict().items()})
    assert resumed["bank"].full
    for n in range(6, 9):
        for part in (going, resumed):
            part["bank"].add(rows_of(7, 4, seed=n), torch.arange(7)[:, None] + n)
    assert torch.equal(going["bank"].rows, resumed["bank"].rows)
    assert torch.equal(going["bank"].tags, resumed["bank"].tags)


def test_rows_enter_without_gradient_and_while_a_loss_still_needs_the_old_ones() -> None:
    bank = Bank(4, (3,))
    bank.add(rows_of(4, 3))
    u = rows_of(2, 3, seed=1).requires_grad_()
    before = bank.rows.clone()
    loss = (u @ bank.rows.T).sum()
    bank.add(u)
    loss.backward()
    torch.testing.assert_close(u.grad, before.sum(0).expand(2, 3))
    assert not bank.rows.requires_grad


def test_half_precision_rows_have_length_one_in_single() -> None:
    bank = Bank(4, (512,))
    bank.add(rows_of(4, 512).bfloat16())
    assert bank.rows.dtype == torch.float32
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(4))


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows \(n, 36, 8\) and tags \(n, 1\) or none, found \(2, 8\) and None"):
        Bank(4, (36, 8)).add(torch.zeros(2, 8))
    with pytest.raises(ValueError, match=r"found \(2, 8\) and \(3,\)"):
        Bank(4, (8,)).add(torch.zeros(2, 8), torch.zeros(3, dtype=torch.int64))
