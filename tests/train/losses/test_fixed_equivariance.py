"""Equivariance towards a fixed target: moved as the picture is, counted where it is trusted, background included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import CLASSES, blobs, seeded
from torch import Tensor

from mona_train.augment import Geometry, equivariance, matrices
from mona_train.losses.fixed_equivariance import fixed_equivariance

SIZE = (16, 16)


def turn(count: int) -> Geometry:
    return Geometry((matrices.quarter_turns(torch.ones(count, dtype=torch.int64)),))


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).movedim(-1, 1).float()


def scene() -> tuple[Tensor, Tensor, Tensor]:
    target = torch.randn(3, CLASSES, *SIZE, generator=seeded(1)).softmax(1)
    mask = torch.rand(3, *SIZE, generator=seeded(2)) < 0.6
    return target, mask, torch.randn(3, CLASSES, *SIZE, generator=seeded(3))


def test_it_is_the_divergence_from_the_moved_target_over_trusted_pixels() -> None:
    target, mask, logits = scene()
    found = fixed_equivariance(target, mask, turn(3).grid(SIZE), logits)
    p, trusted = (torch.rot90(maps, 1, (-2, -1)) for maps in (target, mask))
    divergence = (p * (p.log() - logits.log_softmax(1))).sum(1)
    torch.testing.assert_close(found, divergence[trusted].mean())


def test_a_network_that_answers_the_moved_target_has_no_loss() -> None:
    labels = blobs(4, (48, 48))
    grid = equivariance(seeded(), 4, (48, 48)).grid((48, 48))
    target, sure = one_hot(labels), torch.ones_like(labels, dtype=torch.bool)
    moved = grid.bilinear(target).clamp(min=1e-6)
    right = float(fixed_equivariance(target, sure, grid, moved.log()))
    still = float(fixed_equivariance(target, sure, grid, target.clamp(min=1e-6).log()))
    assert 0 <= right < 0.01 * still


def test_pixels_from_beyond_the_frame_and_unsure_ones_get_no_gradient() -> None:
    target, _, logits = scene()
    logits.requires_grad_()
    grid = Geometry((matrices.rotation(torch.full((3,), 45.0), SIZE),)).grid(SIZE)
    mask = torch.zeros(3, *SIZE, dtype=torch.bool)
    mask[:, :8] = True
    fixed_equivariance(target, mask, grid, logits).backward()
    counted = logits.grad.abs().sum(1) > 0
    assert torch.equal(counted, grid.bilinear(mask[:, None].float())[:, 0] > 0)
    assert 0.2 < float(counted.float().mean()) < 0.7


def test_only_trusted_pixels_make_up_a_target_between_pixels() -> None:
    """Half-way between a trusted and an unsure pixel, the target is the trusted one's."""
    target = one_hot(torch.tensor([[[1, 2], [1, 2]]]))
    mask = torch.tensor([[[True, False], [True, False]]])
    half = Geometry((matrices.translation(torch.tensor([1.0]), torch.zeros(1)),)).grid((2, 2))
    logits = 50 * one_hot(torch.ones(1, 2, 2, dtype=torch.int64))
    assert float(fixed_equivariance(target, mask, half, logits)) == pytest.approx(0, abs=1e-5)


def test_without_trusted_pixels_it_is_0() -> None:
    target, mask, logits = scene()
    logits.requires_grad_()
    loss = fixed_equivariance(target, torch.zeros_like(mask), turn(3).grid(SIZE), logits)
    loss.backward()
    assert float(loss.detach()) == 0 and not logits.grad.any()
