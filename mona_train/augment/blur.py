"""Gaussian blur with a sigma per image: two depthwise convolutions over the whole batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TRUNCATE = 4.0  # sigmas, as scipy.ndimage.gaussian_filter; beyond the frame its edge is repeated (mode "nearest")


def gaussian_blur(images: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Images (B, C, H, W) blurred with sigmas in pixels, one (B) per image and axis; sigma 0: no blur."""
    count, channels, height, width = images.shape
    rows, columns = _taps(down, height).to(images), _taps(across, width).to(images)
    r, c = rows.shape[1] // 2, columns.shape[1] // 2
    padded = F.pad(images, (c, c, r, r), mode="replicate")
    planes = padded.reshape(1, count * channels, *padded.shape[2:])  # an image's channel is a group of its own
    rows, columns = (t.repeat_interleave(channels, 0) for t in (rows, columns))
    planes = F.conv2d(planes, columns[:, None, None, :], groups=len(columns))
    return F.conv2d(planes, rows[:, None, :, None], groups=len(rows)).view_as(images)


def _taps(sigma: Tensor, length: int) -> Tensor:
    """Weights (B, 2r+1) that sum to 1; the radius is that of the largest sigma, limited to the image."""
    radius = min(int(TRUNCATE * float(sigma.max()) + 0.5), length - 1)
    away = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (away / sigma.double().clamp(min=1e-3)[:, None]) ** 2)
    return weights / weights.sum(1, keepdim=True)
