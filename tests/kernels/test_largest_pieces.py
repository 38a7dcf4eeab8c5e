"""The largest piece of each class: against SciPy, and the kernel against plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.steps import blobs, seeded
from scipy import ndimage
from torch import Tensor

from mona_kernels.ops.largest_pieces import largest_pieces, reference

VERSIONS = [largest_pieces, reference.largest_pieces]


def by_scipy(labels: Tensor) -> Tensor:
    out = labels.numpy().copy()
    for slice_ in out:
        for label in np.unique(slice_[slice_ > 0]):
            pieces, count = ndimage.label(slice_ == label)
            sizes = ndimage.sum_labels(slice_ == label, pieces, range(1, count + 1))
            slice_[(pieces > 0) & (pieces != 1 + sizes.argmax())] = 0
    return torch.from_numpy(out)


def maze(size: int) -> Tensor:
    """One piece that winds through the whole map: as long a way as there is."""
    walls = torch.ones(1, size, size, dtype=torch.int64)
    walls[:, 1::4, :-1] = 0
    walls[:, 3::4, 1:] = 0
    return walls


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "labels",
    [
        blobs(5, (48, 48)),
        blobs(3, (96, 33), seed=2),
        torch.randint(0, 4, (6, 31, 45), generator=seeded(1)),
        torch.randint(0, 2, (2, 40, 40), generator=seeded(2)),
        torch.randint(0, 300, (2, 16, 16), generator=seeded(3)),
        torch.randint(0, 3, (3, 1, 20), generator=seeded(4)),
        torch.randint(0, 3, (3, 20, 1), generator=seeded(4)),
        maze(41),
    ],
    ids=["blobs", "tall", "noise", "two classes", "many classes", "a row", "a column", "maze"],
)
def test_it_is_what_scipy_finds(version: Callable[[Tensor], Tensor], labels: Tensor) -> None:
    kept = labels.clone()
    assert torch.equal(version(labels), by_scipy(labels))
    assert torch.equal(labels, kept)


@pytest.mark.parametrize("version", VERSIONS)
def test_neighbours_share_an_edge_and_of_equals_the_first_stays(version: Callable[[Tensor], Tensor]) -> None:
    labels = torch.tensor([[[1, 0, 2, 2], [0, 1, 0, 0], [2, 0, 1, 1], [2, 2, 0, 0]]])
    expected = torch.tensor([[[0, 0, 0, 0], [0, 0, 0, 0], [2, 0, 1, 1], [2, 2, 0, 0]]])
    assert torch.equal(version(labels), expected)
    equals = torch.tensor([[[0, 1, 0], [1, 0, 0], [0, 0, 1]]])
    assert torch.equal(version(equals), torch.tensor([[[0, 1, 0], [0, 0, 0], [0, 0, 0]]]))


@pytest.mark.parametrize("version", VERSIONS)
def test_maps_are_looked_at_one_by_one(version: Callable[[Tensor], Tensor]) -> None:
    labels = torch.randint(0, 3, (7, 20, 20), generator=seeded())
    assert torch.equal(version(labels), torch.cat([version(labels[n : n + 1]) for n in range(7)]))
    assert torch.equal(version(labels[:, ::2, 1::3]), by_scipy(labels[:, ::2, 1::3]))  # not contiguous


@pytest.mark.parametrize("version", VERSIONS)
def test_background_and_pixels_to_ignore_stay(version: Callable[[Tensor], Tensor]) -> None:
    labels = torch.tensor([[[-1, 0, -1], [1, 0, 1], [0, -1, 1]]])
    assert torch.equal(version(labels), torch.tensor([[[-1, 0, -1], [0, 0, 1], [0, -1, 1]]]))
    assert version(torch.zeros(2, 4, 4, dtype=torch.int64)).sum() == 0
    assert version(torch.zeros(0, 4, 4, dtype=torch.int64)).shape == (0, 4, 4)


def test_other_shapes_and_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected label maps \(B, H, W\) of int64, found \(4, 4\)"):
        largest_pieces(torch.zeros(4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="int32"):
        largest_pieces(torch.zeros(1, 4, 4, dtype=torch.int32))
