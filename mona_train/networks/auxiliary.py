"""Auxiliary decoders and heads, trained beside the U-Net and dropped afterwards, and what perturbs their inputs.

Perturbations are drawn from torch's generator, as dropout is, and only in training mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.networks.dropout import Dropout
from mona_train.networks.unet import UNet, Up


class FeatureNoise(nn.Module):  # type: ignore[misc]
    """x (1 + n), n uniform in -span..span: drawn for each value of a map, the same for all images of the batch."""

    def __init__(self, span: float) -> None:
        super().__init__()
        self.span = span

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        factor = 1 + self.span * (2 * torch.rand(x.shape[1:], device=x.device) - 1)
        return x * factor.to(x.dtype)


class AttentionDrop(nn.Module):  # type: ignore[misc]
    """Zero where the mean over channels reaches a share of its maximum in the image: the most active regions.

    The share is drawn once for the batch.
    """

    def __init__(self, low: float = 0.7, high: float = 0.9) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        share = self.low + (self.high - self.low) * float(torch.rand(()))
        attention = x.mean(1, keepdim=True)
        return x * (attention < share * attention.amax((2, 3), keepdim=True))


class Decoder(nn.Module):  # type: ignore[misc]
    """A decoder like the U-Net's; `channels` are `UNet.channels`, the deepest first."""

    def __init__(self, channels: Sequence[int], classes: int) -> None:
        super().__init__()
        self.up = nn.ModuleList(Up(deep, skip) for deep, skip in pairwise(channels))
        self.head = nn.Conv2d(channels[-1], classes, 3, padding=1)

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        """Logits, from levels as `UNet.encode` orders them."""
        x = levels[-1]
        for up, skip in zip(self.up, levels[-2::-1], strict=True):
            x = up(x, skip)
        return self.head(x)


class CrossDecoders(nn.Module):  # type: ignore[misc]
    """CCT's three decoders; each sees all levels of the encoder, perturbed in its own way."""

    def __init__(self, channels: Sequence[int], classes: int, *, noise: float, dropout: float) -> None:
        super().__init__()
        self.perturbations = nn.ModuleList([FeatureNoise(noise), Dropout(dropout), AttentionDrop()])
        self.decoders = nn.ModuleList(Decoder(channels, classes) for _ in self.perturbations)

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        pairs = zip(self.decoders, self.perturbations, strict=True)
        return [decoder([perturbed(level) for level in levels]) for decoder, perturbed in pairs]


class PyramidHeads(nn.Module):  # type: ignore[misc]
    """URPC's heads on the decoder's features at 1/8, 1/4 and 1/2 of the size, perturbed; logits at full size."""

    def __init__(self, channels: Sequence[int], classes: int, *, noise: float, dropout: float) -> None:
        super().__init__()
        self.perturbations = nn.ModuleList([Dropout(dropout), AttentionDrop(), FeatureNoise(noise)])
        self.heads = nn.ModuleList(nn.Conv2d(n, classes, 3, padding=1) for n in channels[1:4])

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """From `UNetOutput.features`: the bottleneck and the full-size features have no auxiliary head."""
        size = features[-1].shape[2:]
        parts = zip(self.heads, self.perturbations, features[1:4], strict=True)
        return [F.interpolate(head(perturbed(x)), size) for head, perturbed, x in parts]


@contextmanager
def encoder_levels(unet: UNet) -> Iterator[list[Tensor]]:
    """Collects the encoder's levels, in the order of `UNet.encode`, from a call of the network inside this context.

    The network is called as a whole, as always: the trainer's half precision is part of its call, not of `encode`.
    """
    levels: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _, __, level: levels.append(level)) for block in unet.encoder]
    try:
        yield levels
    finally:
        for hook in hooks:
            hook.remove()
