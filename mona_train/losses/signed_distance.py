"""Signed distance maps of labels (method 6, SimCVD): how far each pixel is from the boundary of each class."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped]
from torch import Tensor


def signed_distance(labels: Tensor, classes: int) -> Tensor:
    """Labels (B, H, W) to maps (B, C - 1, H, W) of the foreground classes, on the labels' device.

    -1 at the innermost pixel of a class, towards 0 at its boundary, 1 at the pixel furthest from it: distances in
    pixels, divided by the largest one inside and by the largest one outside.  A class that is absent is far away: 1
    everywhere (a map of zeros, as others have it, would be a boundary everywhere).  A class that fills the slice: -1.
    """
    if labels.ndim != 3:
        raise ValueError(f"expected labels (B, H, W), found {tuple(labels.shape)}")
    given = labels.cpu().numpy()
    maps = np.stack([[_signed(label == c) for c in range(1, classes)] for label in given])
    return torch.from_numpy(maps).to(labels.device)


def _signed(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    if mask.all() or not mask.any():
        return np.full(mask.shape, -1.0 if mask.all() else 1.0, np.float32)
    inside, outside = (distance_transform_edt(part) for part in (mask, ~mask))
    return np.asarray(outside / outside.max() - inside / inside.max(), np.float32)
