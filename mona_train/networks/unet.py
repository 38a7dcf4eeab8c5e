"""The U-Net of method 2.1, the same one for every method and baseline."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.networks.dropout import Dropout

CHANNELS = (16, 32, 64, 128, 256)
DROPOUT = (0.05, 0.1, 0.2, 0.3, 0.5)
STRIDE = 16  # four poolings


class UNetOutput(NamedTuple):
    logits: Tensor  # B C H W
    features: list[Tensor]  # bottleneck 256 @ H/16, then the decoder's 128 @ H/8, 64 @ H/4, 32 @ H/2, 16 @ H

    @property
    def bottleneck(self) -> Tensor:
        return self.features[0]


class UNet(nn.Module):  # type: ignore[misc]
    def __init__(self, classes: int, *, inputs: int = 1, width: float = 1.0) -> None:
        """`width` multiplies every channel count of the paper."""
        super().__init__()
        c = [max(1, round(width * n)) for n in CHANNELS]
        self.channels = tuple(reversed(c))  # of `UNetOutput.features`
        self.encoder = nn.ModuleList(
            Block(before, after, drop) for before, after, drop in zip([inputs, *c], c, DROPOUT, strict=False)
        )
        self.decoder = nn.ModuleList(Up(deep, skip) for deep, skip in zip(c[:0:-1], c[-2::-1], strict=True))
        self.head = nn.Conv2d(c[0], classes, 3, padding=1)

    def forward(self, images: Tensor) -> UNetOutput:
        return self.decode(self.encode(images))

    def decode(self, levels: list[Tensor]) -> UNetOutput:
        """From the five levels of `encode`, which an auxiliary decoder may be given in another form."""
        features = [levels[-1]]
        for up, skip in zip(self.decoder, levels[-2::-1], strict=True):
            features.append(up(features[-1], skip))
        return UNetOutput(self.head(features[-1]), features)

    def encode(self, images: Tensor) -> list[Tensor]:
        """Five levels, the image's own resolution first and the bottleneck last."""
        height, width = images.shape[-2:]
        if images.ndim != 4 or height % STRIDE or width % STRIDE:
            found = "x".join(map(str, images.shape))
            raise ValueError(
                f"expected images (batch, channels, rows, columns) with rows and columns in multiples of {STRIDE}, "
                f"found {found}; resize or pad them first"
            )
        levels = [self.encoder[0](images)]
        for block in self.encoder[1:]:
            levels.append(block(F.max_pool2d(levels[-1], 2)))
        return levels


class Block(nn.Sequential):  # type: ignore[misc]
    """Two 3x3 convolutions, each with batch norm and leaky ReLU (0.01), dropout between them."""

    def __init__(self, before: int, after: int, dropout: float = 0.0) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.LeakyReLU(),
            Dropout(dropout),
            nn.Conv2d(after, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.LeakyReLU(),
        )


class Up(nn.Module):  # type: ignore[misc]
    """Fewer channels (1x1), bilinear x2 with aligned corners, then concatenation behind the skip connection.

    The published options say `bilinear: False`, but the flag is never used: bilinear is what was trained.
    """

    def __init__(self, deep: int, skip: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(deep, skip, 1)
        self.block = Block(2 * skip, skip)

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:
        raised = F.interpolate(self.narrow(deep), scale_factor=2, mode="bilinear", align_corners=True)
        return self.block(torch.cat([skip, raised], 1))
