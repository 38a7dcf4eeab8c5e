"""CutMix's boxes (method 5.3): how wide, how high, and where, over thousands of them; and whose pixels they show."""

from __future__ import annotations

import pytest
import torch
from helpers.steps import seeded
from torch import Tensor

from mona_train.augment import cutmix

COUNT = 4000


def boxes(size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width (B) of each image's box, read off its mask; the mask is that box and nothing else."""
    taken = ~cutmix(seeded(), COUNT, size).keep
    rows, columns = taken.any(2), taken.any(1)
    top, left = rows.int().argmax(1), columns.int().argmax(1)
    height, width = rows.sum(1), columns.sum(1)
    assert torch.equal(taken.sum((1, 2)), height * width)
    return top, left, height, width


@pytest.mark.parametrize("size", [(16, 16), (12, 20)])
def test_a_box_has_half_the_area_and_any_width_above_half(size: tuple[int, int]) -> None:
    _, _, height, width = boxes(size)
    assert set(width.tolist()) == set(range(size[1] // 2 + 1, size[1]))
    counts = torch.bincount(width)[size[1] // 2 + 1 :]
    assert counts.min() > 0.8 * counts.float().mean()  # each as likely
    assert bool(((height * width - size[0] * size[1] / 2).abs() <= width / 2).all())  # to the nearest row


@pytest.mark.parametrize("size", [(16, 16), (12, 20)])
def test_a_box_lies_anywhere_in_the_frame_in_both_directions(size: tuple[int, int]) -> None:
    top, left, height, width = boxes(size)
    for w in width.unique().tolist():
        found = torch.bincount(left[width == w], minlength=size[1] - w + 1)
        assert len(found) == size[1] - w + 1 and found.min() > 0.5 * found.float().mean()
    for h in height.unique().tolist():
        found = torch.bincount(top[height == h], minlength=size[0] - h + 1)
        assert len(found) == size[0] - h + 1 and found.min() > 0.5 * found.float().mean()
    room = (size[0] - height > 0) & (size[1] - width > 0)
    places = torch.stack([top / (size[0] - height), left / (size[1] - width)])[:, room]
    assert abs(float(torch.corrcoef(places)[0, 1])) < 0.1  # neither says anything about the other


def test_a_box_shows_the_next_image_and_the_rest_is_the_image_itself() -> None:
    mix = cutmix(seeded(), 5, (16, 16))
    numbers = torch.arange(5)[:, None, None].expand(5, 16, 16)
    mixed = mix.of(numbers)
    for n in range(5):
        assert torch.equal(mixed[n], torch.where(mix.keep[n], n, (n + 1) % 5))
    assert torch.equal(mix.of(numbers[:, None].float())[:, 0], mixed.float())
