"""What the phantom is painted with: smooth noise, soft edges, layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

# k j i while drawing, which transposed is i j k in Fortran order. A NumPy float64 scalar would promote all of it
# and halve the speed, hence the `tolist()` after each draw of several numbers.
Array = NDArray[np.float32]
Length = float | Array


def smooth(rng: Generator, shape: tuple[int, ...], cell: float) -> Array:
    """Noise of about unit variance that varies over `cell` pixels: cubic B-splines on random knots, per slice."""
    *slices, height, width = shape
    rows, columns = splines(height, cell), splines(width, cell)
    knots = rng.standard_normal((*slices, rows.shape[1], columns.shape[1]), dtype=np.float32)
    # einsum, not @: a BLAS would start threads for these small products and round differently on each machine.
    across = np.einsum("...kl,wl->...kw", knots, columns)
    noise = np.einsum("hk,...kw->...hw", rows, across)
    return np.asarray(noise / np.float32(0.48))  # 0.48: sum of the squared weights, on average


def splines(size: int, cell: float) -> Array:
    knots = np.arange(size // cell + 4, dtype=np.float32)
    away = np.abs(np.arange(size, dtype=np.float32)[:, None] / np.float32(cell) + 1 - knots)
    return np.asarray(np.where(away < 1, 2 / 3 - away**2 + away**3 / 2, np.clip(2 - away, 0, None) ** 3 / 6))


def ellipse(x: Array, y: Array, centre: Sequence[Length], radii: Sequence[Length], turn: float) -> Array:
    """Roughly the distance to an ellipse, negative inside."""
    dx, dy, cos, sin = x - centre[0], y - centre[1], math.cos(turn), math.sin(turn)
    u, v = (cos * dx + sin * dy) / radii[0], (cos * dy - sin * dx) / radii[1]
    return np.asarray((np.sqrt(u**2 + v**2) - 1) * np.minimum(radii[0], radii[1], dtype=np.float32))


def cover(distance: Array, soft: Length) -> Array:
    """The share of a voxel inside an edge at `distance`: a fade over `soft` mm, the partial volume."""
    return np.asarray(np.clip(0.5 - distance / soft, 0, 1))


def over(picture: Array, share: Array, value: Length) -> None:
    picture += share * (value - picture)
