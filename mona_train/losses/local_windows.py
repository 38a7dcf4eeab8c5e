"""The windows that the local loss compares (method 3.4): a regular grid, jittered a little in each step.

Window i is at the same place in every image and in both networks, and close to it in later steps.  So crops with the
same index are comparable, which they were not after the published code's reshape (difference 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mona_train.augment.draw import Size, uniform

SHARE = 4  # a window's side is a quarter of the frame's: 64 at 256 (decision 8)


@dataclass(frozen=True)
class Windows:
    """Window i is the pixels top[i] <= y < top[i] + side[0], left[i] <= x < left[i] + side[1]; counted by rows."""

    top: Tensor  # n, int64, on the CPU
    left: Tensor
    side: Size
    size: Size  # of the frame

    def __len__(self) -> int:
        return len(self.top)

    def of(self, maps: Tensor) -> Tensor:
        """Windows (B, n, C, h, w) of maps (B, C, H, W); differentiable.

        One gather: with the pooling, 15 ms forward and backward for 6 maps of 4 x 256 x 256 on one core; 66 ms for
        slices and a stack, whose backward pass writes a full-size gradient 36 times.
        """
        if maps.ndim != 4 or tuple(maps.shape[2:]) != self.size:
            raise ValueError(f"expected maps (B, C, {self.size[0]}, {self.size[1]}), found {tuple(maps.shape)}")
        y, x = (
            start.to(maps.device)[:, None] + torch.arange(n, device=maps.device)
            for start, n in zip((self.top, self.left), self.side, strict=True)
        )
        pixels = (y[:, :, None] * self.size[1] + x[:, None, :]).flatten()  # n h w, of the flattened frame
        count, channels = maps.shape[:2]
        taken = maps.flatten(2).gather(2, pixels.expand(count, channels, -1))
        return taken.view(count, channels, len(self), *self.side).transpose(1, 2)


def draw_windows(generator: Generator, size: Size, *, per_side: int = 6, jitter: float = 1 / 16) -> Windows:
    """per_side x per_side windows that span the frame, each moved by up to `jitter` frames but kept inside."""
    if min(size) < SHARE or per_side < 1:
        raise ValueError(f"expected at least {SHARE} x {SHARE} pixels and one window, found {size} and {per_side}")
    side = (size[0] // SHARE, size[1] // SHARE)
    room = torch.tensor([size[0] - side[0], size[1] - side[1]])  # the last origin, down and across
    step = torch.linspace(0, 1, per_side, dtype=torch.float64)
    grid = torch.cartesian_prod(step, step).view(-1, 2) * room
    moved = grid + uniform(generator, (-jitter, jitter), *grid.shape) * torch.tensor(size)
    top, left = torch.minimum(moved.round().long().clamp(min=0), room).unbind(1)
    return Windows(top, left, side, size)
