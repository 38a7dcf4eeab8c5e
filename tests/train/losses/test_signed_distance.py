"""Signed distance maps against brute force, and the classes that are not there."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import CLASSES, blobs

from mona_train.losses.signed_distance import signed_distance


def brute(mask: torch.Tensor) -> torch.Tensor:
    """Distance of each pixel to the nearest one on the other side, by trying all."""
    points = torch.cartesian_prod(*(torch.arange(n) for n in mask.shape)).double()
    far = torch.cdist(points, points)
    flat = mask.flatten()
    far[flat[:, None] == flat[None]] = math.inf
    nearest = far.amin(1)
    outside, inside = nearest * ~flat, nearest * flat
    return (outside / outside.max() - inside / inside.max()).view(mask.shape).float()


def test_it_is_the_distance_to_the_nearest_pixel_of_the_other_side() -> None:
    labels = blobs(2, (12, 17), seed=3)
    found = signed_distance(labels, CLASSES)
    assert found.shape == (2, CLASSES - 1, 12, 17) and found.dtype == torch.float32
    checked = 0
    for n, label in enumerate(labels):
        for c in range(1, CLASSES):
            if (label == c).any():
                torch.testing.assert_close(found[n, c - 1], brute(label == c))
                checked += 1
    assert checked >= 3


def test_inside_is_negative_and_both_ends_are_reached() -> None:
    labels = torch.zeros(1, 9, 9, dtype=torch.int64)
    labels[0, 2:7, 2:7] = 1
    found = signed_distance(labels, 2)[0, 0]
    assert torch.equal(found < 0, labels[0] == 1)
    assert float(found[4, 4]) == -1 and float(found[0, 0]) == 1
    assert float(found[2, 4]) == pytest.approx(-1 / 3)  # at the edge: one of three pixels


def test_a_class_is_far_away_where_it_is_missing_and_all_inside_where_it_is_everything() -> None:
    found = signed_distance(torch.full((1, 8, 8), 2), 3)
    assert torch.equal(found[0, 0], torch.ones(8, 8)) and torch.equal(found[0, 1], -torch.ones(8, 8))


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected labels \(B, H, W\), found \(8, 8\)"):
        signed_distance(torch.zeros(8, 8, dtype=torch.int64), 3)
