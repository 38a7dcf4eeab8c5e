"""What the encoder of a U-Net was asked, by `forward` or alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def encodings_of(unet: Any) -> list[tuple[Tensor, Tensor]]:
    """Images and pooled bottleneck of every pass through the encoder from now on."""
    seen: list[tuple[Tensor, Tensor]] = []
    encode = unet.encode

    def watched(images: Tensor) -> list[Tensor]:
        levels: list[Tensor] = encode(images)
        seen.append((images, levels[-1].mean((2, 3))))
        return levels

    unet.encode = watched
    return seen
