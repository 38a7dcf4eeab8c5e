"""CutMix (method 5.3): in each image a box of half its area shows the next image of the batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mona_train.augment.draw import Size, uniform


class Mix(NamedTuple):
    """Which pixels an image keeps, and which image the others come from; the same for every map of the batch."""

    keep: Tensor  # B H W, bool
    partner: Tensor  # B, int64

    def of(self, maps: Tensor) -> Tensor:
        """Maps (B, H, W) or (B, C, H, W) of any type."""
        if (len(maps), *maps.shape[-2:]) != self.keep.shape:
            raise ValueError(f"expected maps of {tuple(self.keep.shape)} (B, H, W), found {tuple(maps.shape)}")
        keep = self.keep if maps.ndim == 3 else self.keep[:, None]
        return torch.where(keep, maps, maps[self.partner])


def cutmix(generator: Generator, count: int, size: Size, *, device: torch.device | str = "cpu") -> Mix:
    """One box per image: w uniform in W/2+1..W-1, h = HW / 2w to the nearest row, place uniform."""
    height, width = size
    if min(size) < 3:
        raise ValueError(f"CutMix needs at least 3 x 3 pixels, found {height} x {width}")
    shares = uniform(generator, (0, 1), 3, count)
    narrowest = width // 2 + 1
    w = narrowest + (shares[0] * (width - narrowest)).long()
    h = torch.round(height * width / 2 / w).long().clamp(max=height)
    left = (shares[1] * (width - w + 1)).long()
    top = (shares[2] * (height - h + 1)).long()
    edges = torch.stack([left, left + w, top, top + h]).to(device)[:, :, None]  # 4 B 1
    x, y = torch.arange(width, device=device), torch.arange(height, device=device)
    in_columns = (x >= edges[0]) & (x < edges[1])
    in_rows = (y >= edges[2]) & (y < edges[3])
    partner = torch.arange(1, count + 1, device=device) % count
    return Mix(~(in_rows[:, :, None] & in_columns[:, None, :]), partner)
