"""The discriminator of deep adversarial networks (method 6, DAN): does this map belong to a labelled slice?"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = (64, 128, 256, 512)
LABELLED, UNLABELLED = 1, 0  # its two classes
CELLS = 2  # what it sees of a slice is averaged over 2 x 2 cells


class Discriminator(nn.Module):  # type: ignore[misc]
    """Class probabilities (B, C, H, W) and images (B, 1, H, W) to two logits (B, 2): unlabelled, labelled.

    Four convolutions 4x4 with stride 2; map and image have a first one each, whose results are added without an
    activation.  The published average over 7x7 of 16x16 pixels fits slices of 256x256 alone (and leaves out two rows
    and columns of the 16); averages over a grid of cells fit any size.
    """

    def __init__(self, classes: int, *, inputs: int = 1, width: float = 1.0) -> None:
        """`width` multiplies every channel count, as it does the U-Net's."""
        super().__init__()
        c = [max(1, round(width * n)) for n in CHANNELS]
        self.map, self.image = _half(classes, c[0]), _half(inputs, c[0])
        self.deeper = nn.Sequential(
            *(_half(c[0], c[1]), nn.LeakyReLU(0.2), nn.Dropout2d(0.5)),
            *(_half(c[1], c[2]), nn.LeakyReLU(0.2), nn.Dropout2d(0.5)),
            *(_half(c[2], c[3]), nn.LeakyReLU(0.2)),
        )
        self.verdict = nn.Linear(c[3] * CELLS**2, 2)

    def forward(self, probabilities: Tensor, images: Tensor) -> Tensor:
        seen = self.deeper(self.map(probabilities) + self.image(images))
        return self.verdict(F.adaptive_avg_pool2d(seen, CELLS).flatten(1))


def _half(before: int, after: int) -> nn.Module:
    return nn.Conv2d(before, after, 4, stride=2, padding=1)
