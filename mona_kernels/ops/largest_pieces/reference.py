"""Largest pieces in plain PyTorch: the specification of the kernel, and what runs on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def largest_pieces(labels: Tensor) -> Tensor:
    """Label maps (B, H, W) int64 with all but the largest connected piece of each class set to 0.

    Maps are looked at one by one; neighbours share an edge; of pieces of the same size the one that comes first stays.
    Background (0 and below) stays as it is.
    """
    pixels = labels.numel()
    own = torch.arange(pixels, device=labels.device).view_as(labels)
    # Each pixel learns the first pixel of its piece: the smallest index among its neighbours' and, to get along faster,
    # the one that this index itself has found.
    first = own
    while True:
        found = first.clone()
        for axis in (1, 2):
            here, there = found.narrow(axis, 0, found.shape[axis] - 1), found.narrow(axis, 1, found.shape[axis] - 1)
            same = labels.narrow(axis, 0, found.shape[axis] - 1) == labels.narrow(axis, 1, found.shape[axis] - 1)
            least = torch.minimum(here, there)
            here.copy_(torch.where(same, least, here))
            there.copy_(torch.where(same, torch.minimum(least, there), there))
        found = found.flatten()[found]
        if torch.equal(found, first):
            break
        first = found
    sizes = torch.bincount(first.flatten(), minlength=pixels)[first]  # B H W: of the piece each pixel is in
    score = sizes * pixels + (pixels - 1 - first)  # the larger, then the earlier
    kept = labels.clone()
    for label in labels.unique():
        if label > 0:
            mine = torch.where(labels == label, score, -1)
            kept[(labels == label) & (mine < mine.flatten(1).amax(1)[:, None, None])] = 0
    return kept
