"""Copy-paste: boxes of 2/3 x 2/3, whose pixels are whose, and that all maps are pasted alike."""

from __future__ import annotations

import pytest
import torch
from helpers.steps import seeded
from torch import Tensor

from mona_train.augment import bidirectional, copy_paste
from mona_train.augment.paste import boxes

SIZE = (48, 60)
AREA = 32 * 40


def numbered(count: int, first: int = 0) -> Tensor:
    """Maps (B, H, W) of which every pixel says which image it is."""
    return (torch.arange(count) + first)[:, None, None].expand(count, *SIZE)


def test_a_box_is_two_thirds_of_each_side_at_any_place() -> None:
    found = boxes(seeded(), 500, SIZE)
    rows, columns = found.any(2), found.any(1)
    assert (rows.sum(1) == 32).all() and (columns.sum(1) == 40).all() and (found.sum((1, 2)) == AREA).all()
    top, left = rows.float().argmax(1), columns.float().argmax(1)
    assert set(top.tolist()) == set(range(17)) and set(left.tolist()) == set(range(21))
    assert abs(float(torch.corrcoef(torch.stack([top, left]).float())[0, 1])) < 0.2
    assert abs(float(top.float().mean()) - 8) < 1 and abs(float(left.float().mean()) - 10) < 1


def test_half_of_the_images_show_a_box_of_the_next() -> None:
    mix = copy_paste(seeded(), 400, SIZE)
    shown = mix.of(numbered(400))
    partner = (torch.arange(400) + 1) % 400
    assert bool(((shown == numbered(400)) | (shown == partner[:, None, None])).all())
    foreign = (shown == partner[:, None, None]).sum((1, 2))
    assert set(foreign.tolist()) == {0, AREA}
    assert 160 < int((foreign > 0).sum()) < 240
    assert torch.equal(mix.of(numbered(400)[:, None])[:, 0], shown)


@pytest.mark.parametrize(("labelled", "unlabelled"), [(4, 4), (3, 5), (5, 2), (1, 1)])
def test_mixed_images_show_both_kinds_in_both_directions(labelled: int, unlabelled: int) -> None:
    n = max(labelled, unlabelled)
    pairs = bidirectional(seeded(), labelled, unlabelled, SIZE)
    shown = pairs.of(numbered(labelled), numbered(unlabelled, first=100))
    assert shown.shape == (2 * n, *SIZE)
    assert torch.equal(shown < 100, pairs.known)
    areas = pairs.known.sum((1, 2)).tolist()
    assert areas == [AREA] * n + [SIZE[0] * SIZE[1] - AREA] * n
    for m in range(2 * n):
        assert set(shown[m].unique().tolist()) == {int(pairs.labelled[m]), 100 + int(pairs.unlabelled[m])}
    for half in (slice(None, n), slice(n, None)):  # every image is seen in both directions
        assert set(pairs.labelled[half].tolist()) == set(range(labelled))
        assert set(pairs.unlabelled[half].tolist()) == set(range(unlabelled))


def test_the_second_half_has_other_pairs_and_other_boxes() -> None:
    pairs = bidirectional(seeded(), 4, 4, SIZE)
    couples = list(zip(pairs.labelled.tolist(), pairs.unlabelled.tolist(), strict=True))
    assert len(set(couples)) == 8
    assert len({tuple(box.flatten().tolist()) for box in torch.cat([pairs.known[:4], ~pairs.known[4:]])}) > 6


def test_maps_with_and_without_channels_are_mixed_alike() -> None:
    pairs = bidirectional(seeded(), 3, 3, SIZE)
    flat = pairs.of(numbered(3), numbered(3, 100))
    deep = pairs.of(numbered(3)[:, None].expand(3, 2, *SIZE), numbered(3, 100)[:, None].expand(3, 2, *SIZE))
    assert torch.equal(deep[:, 0], flat) and torch.equal(deep[:, 1], flat)


def test_a_seed_gives_the_same_boxes() -> None:
    first, again, other = (bidirectional(seeded(s), 3, 3, SIZE).known for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_share_of_the_images_is_not_mixed() -> None:
    pairs = bidirectional(seeded(), 300, 300, SIZE, whole=0.25)
    areas = pairs.known.sum((1, 2))
    everything = SIZE[0] * SIZE[1]
    assert set(areas[:300].tolist()) == {AREA, everything} and set(areas[300:].tolist()) == {0, everything - AREA}
    for half, plain in ((areas[:300], everything), (areas[300:], 0)):
        assert 50 < int((half == plain).sum()) < 100
    assert set(bidirectional(seeded(), 50, 50, SIZE).known.sum((1, 2)).tolist()) == {AREA, everything - AREA}
