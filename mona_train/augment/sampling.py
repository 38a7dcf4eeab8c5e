"""`SamplingGrid`: one grid moves all maps of a view. Images and confidences are bilinear, labels nearest.

Rotations by 90 degrees and mirrors move whole pixels: those images skip the grid and keep their exact values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.augment.draw import Size

EDGE = 1 + 1e-5  # float32 points on the frame's edge count as inside: a thousandth of a pixel at 256


class Turn(NamedTuple):
    """One of the eight symmetries of a square."""

    transpose: bool
    flips: tuple[int, ...]  # axes, after transposing

    def of(self, maps: Tensor) -> Tensor:
        return (maps.transpose(-1, -2) if self.transpose else maps).flip(self.flips)


def turn_of(matrix: list[list[float]], size: Size) -> Turn | None:
    """The symmetry given by a 3x3 matrix on points (x, y, 1), if it is exactly one and keeps the frame's shape."""
    (xx, xy, x), (yx, yy, y), _ = matrix
    if x or y:
        return None
    if abs(xx) == abs(yy) == 1 and xy == yx == 0:
        return Turn(False, (*([-2] if yy < 0 else []), *([-1] if xx < 0 else [])))
    if abs(xy) == abs(yx) == 1 and xx == yy == 0 and size[0] == size[1]:
        return Turn(True, (*([-2] if xy < 0 else []), *([-1] if yx < 0 else [])))
    return None


class View(NamedTuple):
    """A batch after a geometry; `inside` marks the pixels that come from inside the source."""

    images: Tensor  # B C H W
    labels: Tensor | None  # B H W
    confidence: Tensor | None  # B H W
    inside: Tensor  # B H W, bool


@dataclass(frozen=True)
class SamplingGrid:
    points: Tensor  # M H W 2: where the pixels of the M images that need interpolation come from
    moved: list[int]  # which those are
    turns: dict[int, Turn]  # the others
    inside: Tensor  # B H W, bool: whose point lies in the source's frame
    source: Size  # of the maps to sample; the view may be smaller (turns: never)

    @classmethod
    def of(cls, points: Tensor, moved: list[int], turns: dict[int, Turn], source: Size) -> SamplingGrid:
        """`points` as planes x and y (M, 2, H, W): grid_sample reads the permuted view as fast as a copy of it."""
        inside = points.new_ones((len(moved) + len(turns), *points.shape[2:]), dtype=torch.bool)
        inside[moved] = (points.abs() <= EDGE).all(1)
        return cls(points.permute(0, 2, 3, 1), moved, turns, inside, source)

    def bilinear(self, maps: Tensor) -> Tensor:
        """Maps (B, C, H, W) of any float type, zero outside; differentiable with respect to them."""
        return self._sample(maps, "bilinear")

    def nearest(self, labels: Tensor, *, ignore: int = 0) -> Tensor:
        """Labels (B, H, W) of any integer type, `ignore` outside; ids below 2^24 are exact in float32."""
        return self._sample(labels[:, None], "nearest")[:, 0].masked_fill(~self.inside, ignore)

    def apply(
        self, images: Tensor, labels: Tensor | None = None, confidence: Tensor | None = None, *, ignore: int = 0
    ) -> View:
        """Images (B, C, H, W) and confidence (B, H, W) are zero outside, labels (B, H, W) are `ignore`."""
        moved = None if labels is None else self.nearest(labels, ignore=ignore)
        if confidence is None:
            return View(self.bilinear(images), moved, None, self.inside)
        together = self.bilinear(torch.cat([_floats(images), _floats(confidence)[:, None]], 1))  # weights found once
        sure = together[:, -1].clamp(0, 1) * self.inside  # clamp: four weights may add up to a little more than 1
        return View(together[:, :-1].to(images.dtype), moved, sure.to(confidence.dtype), self.inside)

    def _sample(self, maps: Tensor, mode: str) -> Tensor:
        count, (height, width) = len(self.inside), self.source
        if maps.ndim != 4 or (len(maps), *maps.shape[2:]) != (count, height, width):
            raise ValueError(f"expected {count} maps of {height} x {width} pixels, found {tuple(maps.shape)}")
        if not self.turns:
            return self._interpolate(maps, mode)
        out = torch.empty_like(maps)
        if self.moved:
            out[self.moved] = self._interpolate(maps[self.moved], mode)
        for image, turn in self.turns.items():
            out[image] = turn.of(maps[image])
        return out

    def _interpolate(self, maps: Tensor, mode: str) -> Tensor:
        source = _floats(maps)
        return F.grid_sample(source, self.points.to(source.dtype), mode, "zeros", align_corners=True).to(maps.dtype)


def _floats(maps: Tensor) -> Tensor:
    """Float64 stays; everything else is interpolated in float32, for half precision would move the points."""
    return maps if maps.dtype == torch.float64 else maps.float()
