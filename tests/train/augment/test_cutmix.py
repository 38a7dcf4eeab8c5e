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


@pytest.mark.parametrize("size", [(256, 256), (255, 255), (64, 96), (97, 33), (5, 7), (3, 3)])
def test_the_box_has_half_the_area(size: tuple[int, int]) -> None:
    height, width = size
    keep = cutmix(seeded(), 400, size).keep
    box = ~keep
    area = box.sum((1, 2))
    assert (area - height * width / 2).abs().max() <= width / 2 + 0.5  # half of one row
    rows, columns = box.any(2).sum(1), box.any(1).sum(1)
    assert torch.equal(rows * columns, area)  # a full rectangle
    assert columns.min() == width // 2 + 1 and columns.max() == width - 1
    if size == (256, 256):
        assert rows.min() >= 129 and rows.max() <= 254
        first = box.any(1).float().argmax(1)
        room = 256 - columns
        share = (first / room)[room > 20]
        assert share.min() < 0.05 and share.max() > 0.95 and float(share.mean()) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_cutmix_mixes_all_maps_with_one_mask(count: int) -> None:
    size = (24, 36)
    ids = torch.arange(count)[:, None, None].expand(count, *size)
    mix = cutmix(seeded(), count, size)
    images, labels, confidence = mix.of(ids[:, None].float() / 8), mix.of(ids.to(torch.int64) - 1), mix.of(ids / 16)
    logits = mix.of(ids[:, None].expand(count, 4, *size).float())
    expected = torch.where(mix.keep, ids, (ids + 1) % count)
    assert torch.equal(images[:, 0] * 8, expected.float())
    assert torch.equal(labels, expected - 1)  # -1, "ignore", too
    assert torch.equal(confidence * 16, expected.float())
    assert torch.equal(logits[:, 3], expected.float())


def test_cutmix_refuses_what_it_cannot_cut() -> None:
    with pytest.raises(ValueError, match="at least 3 x 3"):
        cutmix(seeded(), 2, (2, 8))
    with pytest.raises(ValueError, match=r"found \(2, 8, 9\)"):
        cutmix(seeded(), 2, (8, 8)).of(torch.zeros(2, 8, 9))
