"""The transforms of the equivariance loss (method 4.4): thin-plate splines, their ranges and inverses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.steps import seeded
from helpers.views import batch, pixels

from mona_train.augment import Equivariance, Geometry, diffeo, equivariance
from mona_train.augment.equivariance import CONTROLS


def tps(points: np.ndarray, controls: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The thin-plate spline through `values` at `controls`, straight from its definition, float64."""

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        r2 = ((a[:, None] - b) ** 2).sum(-1)
        return 0.5 * r2 * np.log(np.where(r2 == 0, 1, r2))

    n = len(controls)
    ones = np.c_[np.ones(n), controls]
    system = np.block([[kernel(controls, controls), ones], [ones.T, np.zeros((3, 3))]])
    weights = np.linalg.solve(system, np.r_[values, np.zeros((3, 2))])
    return kernel(points, controls) @ weights[:n] + np.c_[np.ones(len(points)), points] @ weights[n:]


@pytest.mark.parametrize("size", [(65, 65), (33, 49)])
def test_the_grid_is_the_thin_plate_spline_through_moved_control_points(size: tuple[int, int]) -> None:
    limits = Equivariance(bend=0.05)
    geometry = equivariance(seeded(2), 3, size, limits=limits)
    points = geometry.points(size).double().numpy()
    shifts = torch.rand(3, CONTROLS**2, 2, generator=seeded(2), dtype=torch.float64).numpy() * 0.1 - 0.05  # first draw
    axis = np.linspace(-1, 1, CONTROLS)
    controls = np.array([(x, y) for y in axis for x in axis])
    rows, columns = (np.linspace(0, n - 1, CONTROLS).astype(int) for n in size)  # control points are pixels here
    every = np.array([(x, y) for y in np.linspace(-1, 1, size[0]) for x in np.linspace(-1, 1, size[1])])
    for i in range(3):
        similarity = geometry.steps[0][i].numpy()
        moved = (controls + shifts[i]) @ similarity[:2, :2].T + similarity[:2, 2]
        at_controls = points[i][:, rows[:, None], columns].reshape(2, -1).T
        np.testing.assert_allclose(at_controls, moved, atol=2e-6)
        np.testing.assert_allclose(points[i].reshape(2, -1).T, tps(every, controls, moved), atol=5e-6)


def test_equivariance_ranges() -> None:
    matrix = equivariance(seeded(), 2000, (8, 8)).steps[0]
    scale = torch.linalg.det(matrix).abs().sqrt()
    assert 0.8333 <= scale.min() < 0.84 and 1.24 < scale.max() <= 1.25
    assert abs(int((torch.linalg.det(matrix) < 0).sum()) - 1000) < 4 * math.sqrt(500)  # a coin per image
    angle = torch.rad2deg(torch.atan2(-matrix[:, 0, 1], matrix[:, 1, 1]))
    assert -60 <= angle.min() < -58 and 58 < angle.max() <= 60
    shift = matrix[:, :2, 2]
    assert 0.098 < shift.abs().max() <= 0.1 and abs(float(shift.mean())) < 0.005
    bend = equivariance(seeded(), 200, (17, 17)).steps[1]
    assert 0.009 < bend[..., ::4, ::4].abs().max() <= 0.0100001


def test_no_transform_is_the_identity() -> None:
    nothing = Equivariance(degrees=0, scale=(1, 1), shift=0, bend=0, mirror=0)
    images, labels, confidence = batch(3, (24, 40))
    view = equivariance(seeded(), 3, (24, 40), limits=nothing).apply(images, labels, confidence)
    assert torch.equal(view.images, images) and torch.equal(view.labels, labels) and view.inside.all()
    probabilities = torch.rand(3, 4, 24, 40)
    assert torch.equal(
        equivariance(seeded(), 3, (24, 40), limits=nothing).grid((24, 40)).bilinear(probabilities), probabilities
    )


@pytest.mark.parametrize("size", [(128, 128), (96, 160)])
def test_there_and_back(size: tuple[int, int]) -> None:
    transform = equivariance(seeded(1), 8, size)
    frame = Geometry.identity(8).points(size)
    assert pixels(transform.then(transform.inverse()).points(size) - frame).abs().max() < 0.1
    bent = diffeo(seeded(1), 8, probability=1)
    assert pixels(bent.then(bent.inverse()).points(size) - frame).abs().max() < 0.15

    y, x = torch.meshgrid(torch.linspace(0, 9, size[0]), torch.linspace(0, 9, size[1]), indexing="ij")
    smooth = (0.5 + 0.25 * torch.sin(x) + 0.25 * torch.cos(y + 1)).expand(8, 1, -1, -1)
    there = transform.apply(torch.cat([smooth, torch.ones_like(smooth)], 1)).images
    back = transform.inverse().apply(there)
    seen = back.inside & (back.images[:, 1] > 0.999)
    assert seen.float().mean() > 0.5
    assert (back.images[:, :1] - smooth)[:, 0][seen].abs().max() < 0.01  # two resamplings of a smooth image
    assert (there[:, :1] - smooth).abs().mean() > 0.1


def test_an_inverse_that_is_not_found_is_not_returned() -> None:
    field = torch.zeros(1, 2, 9, 9)
    field[:, 0] = 5 * torch.linspace(-1, 1, 9)
    with pytest.raises(ValueError, match="cannot be inverted"):
        Geometry((field,)).inverse()


def test_warped_probabilities_divided_by_a_warped_mask_are_probabilities() -> None:
    """decision 7: what T does to the edge is the same for every map."""
    grid = equivariance(seeded(3), 6, (40, 40)).grid((40, 40))
    warped = grid.bilinear(torch.rand(6, 4, 40, 40).softmax(1))
    ones = grid.bilinear(torch.ones(6, 1, 40, 40))
    total = (warped / ones.clamp(min=1e-6)).sum(1)[ones[:, 0] > 1e-3]
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (ones < 1e-6).any() and (ones[:, 0][grid.inside] > 0.9999).all()
