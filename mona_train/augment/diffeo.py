"""The diffeomorphic warp (method 5.4): a random smooth velocity, integrated by scaling and squaring.

Where this differs from the published field, and why:
* The velocity's component across an edge fades to zero there, so the warp maps the frame onto itself. The published
  one clamps points to the frame, which flattens a rim of up to four pixels (Jacobian 0).
* It is integrated on a lattice of 129 x 129 points and interpolated from there, which also replaces the last blur
  of 1 px. At 256 x 256 the distance to full-size integration with that blur is 0.012 px RMS (method 5.4 asks for
  less than 0.05); 64 x 64 would give 0.065.
* The frame is never modified; the published code changes it before subtracting it, an error of 0.4 %.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Generator, Tensor

from mona_train.augment.draw import coins, uniform
from mona_train.augment.geometry import Geometry, displacement_at, frame_points

KNOTS = 32  # velocities per axis
LATTICE = 129
SQUARINGS = 8
STRENGTH = 1.5  # epsilon: 1.5 px RMS, 4.5 px at most, at 256 x 256; up to 3 stays free of folds
PUBLISHED = 256  # pixels: the size for which method 5.4 places the knots (align_corners=False)
FADE = 2.0  # knots over which the velocity fades towards an edge


def diffeo(
    generator: Generator,
    count: int,
    *,
    strength: float = STRENGTH,
    probability: float = 0.5,
    device: torch.device | str = "cpu",
) -> Geometry:
    """One coin for the whole batch (method 5.4), then per image a field and an epsilon in 0..strength."""
    warped = bool(coins(generator, probability))
    velocity = uniform(generator, (-1, 1), count, 2, KNOTS, KNOTS)
    epsilon = uniform(generator, (0, strength), count)
    if not warped:
        return Geometry.identity(count)
    velocity *= (epsilon / velocity.flatten(1).norm(dim=1))[:, None, None, None]
    return Geometry((integrate(spread(velocity.to(device, torch.float32))),))


def spread(velocity: Tensor) -> Tensor:
    """Knots (B, 2, 32, 32) smoothed and interpolated to the lattice: linear and separable, so a matrix per axis."""
    along, across = _spreading(velocity.device)
    x, y = velocity.unbind(1)
    return torch.stack([along @ x @ across.T, across @ y @ along.T], 1)


def integrate(velocity: Tensor) -> Tensor:
    """The displacement exp(v) - id on the lattice, u being doubled by u(p) + u(p + u(p)) (B, 2, h, w)."""
    frame = frame_points((velocity.shape[-2], velocity.shape[-1]), velocity.device)
    moved = velocity / 2**SQUARINGS
    for _ in range(SQUARINGS):
        moved = moved + displacement_at(moved, frame + moved)
    return moved


@lru_cache(maxsize=8)
def _spreading(device: torch.device) -> tuple[Tensor, Tensor]:
    """Matrices (129, 32): blur with sigma 1 knot (7 taps, zeros beyond) and interpolate; the second also fades."""
    knot = torch.arange(KNOTS, dtype=torch.float64)
    apart = (knot[:, None] - knot).abs()
    taps = torch.exp(-(torch.arange(-3, 4, dtype=torch.float64) ** 2) / 2)
    blur = torch.where(apart <= 3, torch.exp(-(apart**2) / 2), 0) / taps.sum()
    place = torch.linspace(0, PUBLISHED - 1, LATTICE, dtype=torch.float64)  # pixels of the published frame
    at = ((place + 0.5) * KNOTS / PUBLISHED - 0.5).clamp(0, KNOTS - 1)
    hats = (1 - (at[:, None] - knot).abs()).clamp(min=0)
    fade = (torch.minimum(place, PUBLISHED - 1 - place) * KNOTS / PUBLISHED / FADE).clamp(max=1)
    along = hats @ blur
    return along.to(device, torch.float32), (fade[:, None] * along).to(device, torch.float32)
