"""The transform T of L_eqv (method 4.4): a similarity of each image and a slight thin-plate spline.

T is a `Geometry`: `grid(size, device)` moves images, probabilities, masks and a map of ones in the same way, and
`inverse()` maps back. The photometric part of T is a new `jitter` of the moved image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

from mona_train.augment import matrices
from mona_train.augment.draw import Range, Size, coins, uniform
from mona_train.augment.geometry import Geometry

CONTROLS = 5  # control points per axis, spread over the frame


@dataclass(frozen=True)
class Equivariance:
    """Limits of T; lengths in units of half a frame, so that they scale with the input (decision 8)."""

    degrees: float = 60.0
    scale: Range = (1 / 1.2, 1 / 0.8)  # of the sampling grid: the picture shrinks by 0.8 or grows by 1.2
    shift: float = 0.1
    bend: float = 0.01  # of each control point, per axis
    mirror: float = 0.5  # a coin per image; published: one per batch


def equivariance(
    generator: Generator,
    count: int,
    size: Size,
    *,
    limits: Equivariance = Equivariance(),
    device: torch.device | str = "cpu",
) -> Geometry:
    """Sampling points = similarity(p + spline(p)): the similarity moves the spline's control points (rand_tps)."""
    controls = uniform(generator, (-limits.bend, limits.bend), count, CONTROLS**2, 2)
    angle = uniform(generator, (-limits.degrees, limits.degrees), count)
    scale = uniform(generator, limits.scale, count)
    shift = uniform(generator, (-limits.shift, limits.shift), 2, count)
    mirrored = 1.0 - 2.0 * coins(generator, limits.mirror, count).double()
    similarity = (
        matrices.translation(*shift) @ matrices.rotation(angle, size) @ matrices.scaling(scale * mirrored, scale)
    )
    if limits.bend == 0:
        return Geometry((similarity,))
    return Geometry((similarity, spline(controls.to(device, torch.float32), size)))


def spline(controls: Tensor, size: Size) -> Tensor:
    """Displacement (B, 2, H, W) that moves control point n, counted by rows, by `controls[:, n]` (x, y)."""
    basis = _basis(size, controls.device)  # HW 25
    return (basis @ controls.transpose(0, 1).flatten(1)).view(*size, -1, 2).permute(2, 3, 0, 1).contiguous()


@lru_cache(maxsize=8)
def _basis(size: Size, device: torch.device) -> Tensor:
    """What each control point contributes to each pixel: the same for every step, (H W, 25).

    The spline is linear in its control values, and reproduces linear maps; so its displacement is this matrix
    times the displacements of the control points.
    """
    axis = torch.linspace(-1, 1, CONTROLS, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis).flip(1)  # 25 points (x, y)
    n = len(points)
    system = torch.zeros(n + 3, n + 3, dtype=torch.float64)
    system[:n, :n] = _kernel(points, points)
    system[:n, n:] = _affine(points)
    system[n:, :n] = _affine(points).T
    rows, columns = (torch.linspace(-1, 1, k, dtype=torch.float64) for k in size)
    pixels = torch.cartesian_prod(rows, columns).flip(1)
    terms = torch.cat([_kernel(pixels, points), _affine(pixels)], 1)  # HW 28
    return (terms @ torch.linalg.inv(system)[:, :n]).to(device, torch.float32)


def _kernel(a: Tensor, b: Tensor) -> Tensor:
    """r^2 ln r, 0 at r = 0."""
    squared = (a[:, None] - b).square().sum(-1)
    return torch.xlogy(squared, squared) / 2


def _affine(points: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(points[:, :1]), points], 1)
