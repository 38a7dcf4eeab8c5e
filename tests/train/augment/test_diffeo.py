"""The diffeomorphic warp (method 5): it never folds, stays in the frame, and is one coin per batch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import seeded
from helpers.views import SIZES, pixels
from torch import Tensor

from mona_train.augment import Geometry, diffeo
from mona_train.augment.diffeo import KNOTS, integrate, spread


def jacobian(points: Tensor) -> Tensor:
    right = (points[..., :-1, 1:] - points[..., :-1, :-1]).double()
    down = (points[..., 1:, :-1] - points[..., :-1, :-1]).double()
    area = 4 / ((points.shape[-1] - 1) * (points.shape[-2] - 1))
    return (right[:, 0] * down[:, 1] - right[:, 1] * down[:, 0]) / area


@pytest.mark.parametrize("strength", [1.5, 3.0])
def test_a_thousand_warps_do_not_fold(strength: float) -> None:
    lowest, longest = [], []
    for seed in range(20):
        velocity = 2 * torch.rand(50, 2, KNOTS, KNOTS, generator=seeded(seed)) - 1
        velocity *= strength / velocity.flatten(1).norm(dim=1)[:, None, None, None]  # the largest epsilon, always
        warp = Geometry((integrate(spread(velocity)),))
        lowest.append(jacobian(warp.steps[0] + Geometry.identity(50).points((129, 129))).min())
        if seed == 0:
            assert jacobian(warp.points((256, 256))).min() > 0.1
            moved = pixels(warp.points((256, 256)) - Geometry.identity(50).points((256, 256)))
            rms = float(moved.square().sum(1).mean().sqrt())
            assert rms == pytest.approx(strength, rel=0.1)  # method 5.4: 1.5 px RMS
            longest.append(float(moved.abs().max()))
    assert min(lowest) > 0.1, min(lowest)
    assert longest[0] == pytest.approx(3 * strength, rel=0.3)


def test_the_warp_maps_the_frame_onto_itself() -> None:
    for size in SIZES:
        warp = diffeo(seeded(), 8, probability=1, strength=3)
        points = warp.points(size)
        torch.testing.assert_close(points[:, 0, :, [0, -1]].abs(), torch.ones(8, size[0], 2))
        torch.testing.assert_close(points[:, 1, [0, -1]].abs(), torch.ones(8, 2, size[1]))
        assert warp.grid(size).inside.all()
        assert warp.apply(torch.ones(8, 1, *size)).images.min() > 0.999


def test_low_resolution_agrees_with_full_size_integration() -> None:
    """method 5.4 step by step at 256 x 256 in float64: conv, interpolate, 8 squarings of phi, blur of 1 px."""
    n = 256
    velocity = 2 * torch.rand(8, 2, KNOTS, KNOTS, generator=seeded(7), dtype=torch.float64) - 1
    velocity *= 1.5 / velocity.flatten(1).norm(dim=1)[:, None, None, None]
    bell = torch.exp(-(torch.arange(-3, 4, dtype=torch.float64) ** 2) / 2)
    kernel = (bell[:, None] * bell / bell.sum() ** 2).expand(2, 1, 7, 7)
    full = F.interpolate(F.conv2d(velocity, kernel, padding=3, groups=2), (n, n), mode="bilinear", align_corners=False)
    fade = (torch.minimum(torch.arange(n), n - 1 - torch.arange(n)).double() / 16).clamp(max=1)
    full = full * torch.stack([fade.expand(n, n), fade.expand(n, n).T])
    frame = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, n, dtype=torch.float64)] * 2, indexing="xy"))
    phi = frame + full / 256
    for _ in range(8):
        phi = F.grid_sample(phi, phi.permute(0, 2, 3, 1), padding_mode="border", align_corners=True)
    moved = F.conv2d(F.pad(phi - frame, (3, 3, 3, 3), mode="replicate"), kernel, groups=2)

    ours = Geometry((integrate(spread(velocity.float())),)).points((n, n)) - frame
    error = pixels(ours - moved).square().sum(1).sqrt()
    assert error.square().mean().sqrt() < 0.02  # px; method 5.4 allows 0.05
    assert error.flatten()[::13].quantile(0.99) < 0.05
    assert error.max() < 0.15


def test_the_warp_is_one_coin_per_batch_and_an_epsilon_per_image() -> None:
    generator = seeded()
    draws = [diffeo(generator, 2) for _ in range(300)]
    warped = [g for g in draws if g.steps[0].ndim == 4]
    assert abs(len(warped) - 150) < 4 * math.sqrt(75)
    sizes = torch.stack([g.steps[0].square().mean((1, 2, 3)).sqrt() for g in warped])
    assert sizes.min() < 0.1 * sizes.max() and (sizes[:, 0] != sizes[:, 1]).all()
    still = next(g for g in draws if g.steps[0].ndim == 3)
    images = torch.rand(2, 1, 20, 20)
    assert torch.equal(still.apply(images).images, images)
