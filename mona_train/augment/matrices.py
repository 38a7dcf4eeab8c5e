"""Batches of 3x3 matrices on points (x, y, 1), where -1 and 1 are the centres of the first and the last pixel.

Float64 on the CPU: a few numbers per image, composed without rounding and read without waiting for a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mona_train.augment.draw import Size


def identity(count: int) -> Tensor:
    return torch.eye(3, dtype=torch.float64).repeat(count, 1, 1)


def linear(xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor) -> Tensor:
    """x' = xx x + xy y, y' = yx x + yy y."""
    matrix = identity(len(xx))
    matrix[:, :2, :2] = torch.stack([torch.stack([xx, xy], -1), torch.stack([yx, yy], -1)], -2).to(matrix)
    return matrix


def scaling(x: Tensor, y: Tensor) -> Tensor:
    zero = torch.zeros_like(x)
    return linear(x, zero, zero, y)


def translation(x: Tensor, y: Tensor) -> Tensor:
    matrix = identity(len(x))
    matrix[:, :2, 2] = torch.stack([x, y], -1)
    return matrix


def rotation(degrees: Tensor, size: Size) -> Tensor:
    """Rigid in pixels: if the frame is not square, a plain rotation of -1..1 would shear."""
    rows, columns = (max(n - 1, 1) for n in size)
    cos, sin = torch.cos(torch.deg2rad(degrees)), torch.sin(torch.deg2rad(degrees))
    return linear(cos, -sin * (rows / columns), sin * (columns / rows), cos)


def quarter_turns(turns: Tensor) -> Tensor:
    """Rotations by 90 degrees in whole numbers, so that they stay exact under composition."""
    cos, sin = (torch.tensor(values, dtype=torch.float64)[turns % 4] for values in ([1, 0, -1, 0], [0, 1, 0, -1]))
    return linear(cos, -sin, sin, cos)
