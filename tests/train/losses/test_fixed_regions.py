"""GCL's regions: thirteen places, and which are positives and negatives of each other."""

from __future__ import annotations

import pytest
import torch

from mona_train.losses.fixed_regions import PLACES, region_pairs, regions

CENTRE, CORNER = 4, 8


@pytest.mark.parametrize(("size", "side"), [((48, 48), (3, 3)), ((8, 12), (3, 3)), ((64, 96), (4, 6))])
def test_regions_span_the_map(size: tuple[int, int], side: tuple[int, int]) -> None:
    found = regions(size)
    corners = {*zip(found.top.tolist(), found.left.tolist(), strict=True)}
    assert found.side == side and len(found) == len(corners) == 13
    assert (0, 0) in corners and (size[0] - side[0], size[1] - side[1]) in corners
    assert found.of(torch.zeros(2, 5, *size)).shape == (2, 13, 5, *side)


def test_the_published_negatives_of_a_corner() -> None:
    _, negatives = region_pairs(torch.tensor([0, 0]))
    near = negatives[CORNER, :13].nonzero().flatten().tolist()
    places = {tuple(PLACES[n].tolist()) for n in near}
    assert {(0.5, 0.5), (0.5, 1), (1, 0.5), (0.75, 0.75)} < places and len(places) == 5
    near = negatives[CENTRE, :13].nonzero().flatten().tolist()
    assert {9, 10, 11, 12} < set(near) and len(near) == 5  # the four quarters


def test_pairs_are_within_an_image() -> None:
    shown = torch.tensor([0, 1, 0, 1])  # two images, twice
    positives, negatives = (pairs.view(4, 13, 4, 13) for pairs in region_pairs(shown))
    assert not (positives & negatives).any()
    for v in range(4):
        for other in range(4):
            same = bool(shown[v] == shown[other])
            assert torch.equal(positives[v, :, other], torch.eye(13, dtype=torch.bool) & same)
            assert negatives[v, :, other].sum(1).tolist() == [5 * same] * 13
            assert not negatives[v, :, other].diagonal().any()
