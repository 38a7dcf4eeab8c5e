"""Weak augmentation (method 5): how often what happens, and that a frame keeps its shape."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from helpers.steps import seeded

from mona_train.augment import weak


def test_weak_branches_have_the_published_frequencies() -> None:
    n = 4000
    matrix = weak(seeded(), n, (64, 64)).steps[0]
    whole = (matrix == matrix.round()).all(2).all(1)
    mirrored = whole & (torch.linalg.det(matrix) < 0)
    crop = ~whole & (matrix[:, 0, 1] == 0)
    rotated = ~whole & ~crop
    still = whole & ~mirrored  # nothing, or a rotation by 0 degrees (1 in 40)
    chance = {"turned": (mirrored, 0.5), "rotated": (rotated, 0.25 * 39 / 40)}
    chance |= {"cropped": (crop, 0.125), "still": (still, 0.125 + 0.25 / 40)}
    for name, (found, p) in chance.items():
        assert abs(int(found.sum()) - n * p) < 4 * math.sqrt(n * p * (1 - p)), name
    assert torch.equal(matrix[still][:, :2], torch.eye(3).double().expand(int(still.sum()), 3, 3)[:, :2])

    kinds = Counter(tuple(m.flatten().tolist()) for m in matrix[mirrored][:, :2, :2])
    assert len(kinds) == 4  # a quarter turn and then always a mirror: the four reflections of a square
    assert min(kinds.values()) > 0.2 * sum(kinds.values())
    angle = torch.rad2deg(torch.atan2(matrix[rotated][:, 1, 0], matrix[rotated][:, 0, 0]))
    assert angle.round().unique().tolist() == [a for a in range(-20, 20) if a]
    side = matrix[crop][:, 0, 0]
    assert torch.equal(side, matrix[crop][:, 1, 1]) and 0.8 <= side.min() < 0.81 and 0.99 < side.max() <= 1
    assert (matrix[crop][:, :2, 2].abs() + side[:, None] <= 1 + 1e-12).all()  # stays in the frame
    assert float(torch.corrcoef(matrix[crop][:, :2, 2].T)[0, 1]) == pytest.approx(0, abs=0.2)


def test_weak_keeps_the_shape_of_a_frame_that_is_not_square() -> None:
    size = (40, 64)
    matrix = weak(seeded(), 500, size).steps[0]
    to_pixels = torch.diag(torch.tensor([63.0, 39.0, 1.0])).double()
    rigid = (to_pixels @ matrix @ torch.linalg.inv(to_pixels))[:, :2, :2]
    gram = rigid @ rigid.transpose(1, 2)
    scale = gram[:, 0, 0, None, None]
    torch.testing.assert_close(gram, scale * torch.eye(2).double())
    grid = weak(seeded(), 500, size).grid(size)
    assert len(grid.turns) > 250 and not any(t.transpose for t in grid.turns.values())


def test_a_crop_shows_a_part_of_the_image_and_nothing_else() -> None:
    geometry = weak(seeded(), 200, (32, 32))
    crop = (geometry.steps[0][:, 0, 0] < 1) & (geometry.steps[0][:, 0, 1] == 0) & (geometry.steps[0][:, 0, 0] > 0.5)
    view = geometry[crop].apply(torch.ones(int(crop.sum()), 1, 32, 32))
    assert view.inside.all() and view.images.min() > 0.9999
