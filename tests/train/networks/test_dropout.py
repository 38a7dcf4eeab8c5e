"""Dropout: as much as asked for, scaled, decided by torch's seed, in the memory order of its input."""

from __future__ import annotations

import pytest
import torch

from mona_train.networks.dropout import Dropout


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_share_of_the_values_is_dropped_and_the_mean_stays(p: float, layout: torch.memory_format) -> None:
    x = torch.ones(4, 16, 64, 64).to(memory_format=layout)
    out = Dropout(p)(x)
    kept = out > 0
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.004)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)], rel=1e-4)
    assert float(out.mean()) == pytest.approx(1, abs=0.01)
    assert out.is_contiguous(memory_format=layout)


def test_the_seed_of_torch_decides_which() -> None:
    x, drop = torch.ones(2, 3, 8, 8), Dropout(0.5)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(drop(x))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert not torch.equal(drop(x), drop(x))


def test_the_gradient_goes_where_the_values_went() -> None:
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(out > 0, 1 / 0.7, 0.0), rtol=1e-4, atol=0)


def test_evaluation_and_probability_0_and_1() -> None:
    x = torch.rand(2, 3, 8, 8)
    assert Dropout(0.5).eval()(x) is x and torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()


def test_values_of_half_precision_stay_so() -> None:
    out = Dropout(0.1)(torch.ones(1, 2, 32, 32, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16 and 0.8 < float((out > 0).float().mean()) < 0.97
