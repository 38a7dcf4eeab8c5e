"""Brightness, contrast, gamma and blur (method 5.2) in float: no 8-bit round trip, clipped to 0..1 and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mona_train.augment.blur import gaussian_blur
from mona_train.augment.draw import Range, coins, uniform

PUBLISHED = 256  # pixels: the size at which a blur's sigma is given; it scales with the input (decision 8)


@dataclass(frozen=True)
class Strength:
    """Ranges, and the probability that an image gets each part."""

    brightness: Range = (0.75, 1.25)
    contrast: Range = (0.75, 1.25)
    gamma: Range = (0.8, 1.25)  # method 3.1 asks for gamma and gives no range
    blur: Range = (0.15, 1.15)  # sigma in pixels of a 256 x 256 image
    colour_probability: float = 0.5  # brightness and contrast come together, in either order
    gamma_probability: float = 0.5
    blur_probability: float = 0.5


ACR = Strength()
GLCON = Strength(brightness=(0.8, 1.2), contrast=(0.8, 1.2))


class Jitter(NamedTuple):
    """Drawn parameters, one per image (B), float64 on the CPU."""

    brightness: Tensor
    contrast: Tensor
    contrast_first: Tensor  # bool
    gamma: Tensor
    blur: Tensor  # sigma, 0 for none


def jitter(generator: Generator, images: Tensor, strength: Strength = ACR) -> Tensor:
    """Images (B, 1, H, W) in 0..1 with brightness, contrast, gamma and blur changed at random."""
    return apply_jitter(images, draw_jitter(generator, len(images), strength))


def draw_jitter(generator: Generator, count: int, strength: Strength = ACR) -> Jitter:
    colour = coins(generator, strength.colour_probability, count)
    brightness = torch.where(colour, uniform(generator, strength.brightness, count), 1.0)
    contrast = torch.where(colour, uniform(generator, strength.contrast, count), 1.0)
    first = coins(generator, 0.5, count)
    curved = coins(generator, strength.gamma_probability, count)
    gamma = torch.where(curved, uniform(generator, strength.gamma, count), 1.0)
    blurred = coins(generator, strength.blur_probability, count)
    sigma = torch.where(blurred, uniform(generator, strength.blur, count), 0.0)
    return Jitter(brightness, contrast, first, gamma, sigma)


def apply_jitter(images: Tensor, drawn: Jitter) -> Tensor:
    """Parameters that change nothing leave an image in 0..1 as it is, bit for bit."""
    if images.ndim != 4 or len(images) != len(drawn.gamma):
        raise ValueError(f"expected images ({len(drawn.gamma)}, C, H, W), found {tuple(images.shape)}")
    half = images.dtype in (torch.float16, torch.bfloat16)
    values = (images.float() if half else images).clamp(0, 1)  # a copy: a view is never written to (difference 6)
    if bool((drawn.brightness != 1).any() or (drawn.contrast != 1).any()):
        _recolour(values, drawn)
    curved = _where(drawn.gamma != 1)
    if curved:
        values[curved] = values[curved] ** _per_image(drawn.gamma[curved], values)
    blurred = _where(drawn.blur > 0)
    if blurred:
        down, across = (drawn.blur[blurred] * n / PUBLISHED for n in values.shape[-2:])
        values[blurred] = gaussian_blur(values[blurred], down, across).clamp_(0, 1)
    return values.to(images.dtype)


def _recolour(values: Tensor, drawn: Jitter) -> None:
    """Brightness clip(b x) and contrast clip(c x + (1 - c) mean x), in either order: twice clip(a x + s mean x)."""
    brighter = torch.stack([drawn.brightness, torch.zeros_like(drawn.brightness)])
    steeper = torch.stack([drawn.contrast, 1 - drawn.contrast])
    for now in (~drawn.contrast_first, drawn.contrast_first):
        factor, share = (_per_image(p, values) for p in torch.where(now, brighter, steeper))
        means = values.mean((1, 2, 3), keepdim=True)
        values.mul_(factor).add_(share * means).clamp_(0, 1)


def _per_image(parameters: Tensor, values: Tensor) -> Tensor:
    return parameters.to(values)[:, None, None, None]


def _where(chosen: Tensor) -> list[int]:
    return [int(i) for i in chosen.nonzero()]
