"""The thirteen regions that GCL's local loss compares (method 6), at fixed places of a decoder's map."""

from __future__ import annotations

import torch
from torch import Tensor

from mona_train.augment.draw import Size
from mona_train.losses.local_windows import Windows

CELLS = 3  # a region is seen as 3 x 3
SIDE = 1 / 16  # of the map: 3 pixels of the published 48
NEAREST = 5  # regions that are negatives
# Corners, edges and centre of the frame, and the centres of its quarters; (y, x) in 0..1.
PLACES = torch.tensor(
    [(y, x) for y in (0, 0.5, 1) for x in (0, 0.5, 1)] + [(y, x) for y in (0.25, 0.75) for x in (0.25, 0.75)]
)


def regions(size: Size) -> Windows:
    """Where the regions are on a map of that size; the outermost touch its edges."""
    side = max(CELLS, round(SIDE * size[0])), max(CELLS, round(SIDE * size[1]))
    room = torch.tensor([size[0] - side[0], size[1] - side[1]])
    top, left = (PLACES * room).round().long().unbind(1)
    return Windows(top, left, side, size)


def region_pairs(shown: Tensor) -> tuple[Tensor, Tensor]:
    """Which of V R regions are positives and negatives of each other, given the image that each of V views shows.

    Positives are the same region in the other view of an image; negatives its nearest regions in both views.
    """
    distance = torch.cdist(PLACES, PLACES).fill_diagonal_(torch.inf)
    nearest = distance.argsort(dim=1, stable=True)[:, :NEAREST]
    near = torch.zeros(distance.shape, dtype=torch.bool).scatter_(1, nearest, True).to(shown.device)
    image = shown.repeat_interleave(len(PLACES))
    region = torch.arange(len(PLACES), device=shown.device).repeat(len(shown))
    together = image[:, None] == image
    return together & (region[:, None] == region), together & near[region[:, None], region]
