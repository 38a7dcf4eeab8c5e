"""The mean over what counts, by hand."""

from __future__ import annotations

import torch

from mona_train.losses.mean_where import mean_where

INF = float("inf")


def test_first_over_what_counts_in_a_row_then_over_the_rows() -> None:
    values = torch.tensor([[1.0, 3.0, INF], [5.0, INF, INF], [INF, -INF, INF]])
    counts = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    assert mean_where(counts, values) == (2 + 5) / 2


def test_where_nothing_counts_it_is_0_and_its_gradient_too() -> None:
    values = torch.zeros(2, 3, requires_grad=True)
    mean = mean_where(torch.zeros(2, 3, dtype=torch.bool), values)
    mean.backward()
    assert mean == 0 and values.grad is not None and not values.grad.any()
