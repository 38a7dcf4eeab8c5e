"""The fitted augmentation: as strong as slices bear that have one orientation, one scale and the organ at the centre.

Mirrors and quarter turns are off by default: where scans have one orientation, the sides of an organ are something to
learn.  Every view that a network learns from is of this strength, so there is no warp on top for a strong one.
Lengths are shares of the window (decision 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mona_train.augment import matrices
from mona_train.augment.augmentation import Augmentation, Device
from mona_train.augment.blur import gaussian_blur
from mona_train.augment.draw import Range, Size, coins, integers, uniform
from mona_train.augment.equivariance import Equivariance
from mona_train.augment.geometry import Geometry
from mona_train.augment.intensity import Strength

KNOTS = 6  # per axis, of the elastic displacement
ELASTIC_PROBABILITY = 0.5

BIAS = 0.15  # sigma of the gain at 3 x 3 knots, smooth between them
CONTRAST = 0.4  # of its logarithm
BRIGHTNESS = 0.1
GAMMA = 0.5  # of its logarithm
BLUR: Range = (0.4, 1.2)  # sigma in pixels of a window of 96
BLUR_WINDOW = 96
NOISE = 0.06  # largest sigma
BIAS_PROBABILITY, GAMMA_PROBABILITY, BLUR_PROBABILITY, NOISE_PROBABILITY = 0.5, 0.7, 0.3, 0.5


@dataclass(frozen=True)
class Fitted(Augmentation):
    mirrors: bool = False
    degrees: float = 35.0
    scale: Range = (0.75, 1.3)  # of the picture, log-uniform
    shift: float = 2 * 8 / 96  # in units of half a window: 8 of 96 pixels
    elastic: float = 2 * 2 / 96  # sigma at each knot: 2 of 96 pixels

    @property
    def limits(self) -> Equivariance:
        """T stays among the poses that views have."""
        return Equivariance(degrees=self.degrees, mirror=0.5 if self.mirrors else 0.0)

    def within(self, generator: Generator, count: int, window: Size, device: Device) -> Geometry:
        """Sampling points = similarity(p + elastic(p))."""
        angle = uniform(generator, (-self.degrees, self.degrees), count)
        picture = torch.exp(uniform(generator, (math.log(self.scale[0]), math.log(self.scale[1])), count))
        scale = 1 / picture  # of the grid
        shift = uniform(generator, (-self.shift, self.shift), 2, count)
        matrix = matrices.translation(*shift) @ matrices.rotation(angle, window) @ matrices.scaling(scale, scale)
        if self.mirrors:
            matrix = matrix @ _symmetry(generator, count, window)
        bent = coins(generator, ELASTIC_PROBABILITY, count, 1, 1, 1)
        knots = self.elastic * torch.randn(count, 2, KNOTS, KNOTS, generator=generator) * bent
        if not bool(bent.any()):
            return Geometry((matrix,))
        return Geometry((matrix, _smooth(knots.to(device), window)))

    def warp(self, generator: Generator, count: int, device: Device) -> None:
        return None

    def appearance(self, generator: Generator, images: Tensor, strength: Strength | None) -> Tensor:
        """Bias field, contrast, brightness, gamma, blur and noise; clipped to 0..1 before gamma and not after noise."""
        count, size = len(images), (images.shape[-2], images.shape[-1])
        values = images.float()
        biased = coins(generator, BIAS_PROBABILITY, count, 1, 1, 1)
        bias = BIAS * torch.randn(count, 1, 3, 3, generator=generator) * biased
        contrast = torch.exp(uniform(generator, (-CONTRAST, CONTRAST), count))
        brightness = uniform(generator, (-BRIGHTNESS, BRIGHTNESS), count)
        curved = coins(generator, GAMMA_PROBABILITY, count)
        gamma = torch.where(curved, torch.exp(uniform(generator, (-GAMMA, GAMMA), count)), 1.0)
        blurred = coins(generator, BLUR_PROBABILITY, count)
        sigma = uniform(generator, BLUR, count)
        noisy = coins(generator, NOISE_PROBABILITY, count)
        noise = torch.where(noisy, uniform(generator, (0, NOISE), count), 0.0)
        grain = torch.randn(values.shape, generator=generator)

        values = values * (1 + _smooth(bias.to(values.device), size))
        mean = values.mean((1, 2, 3), keepdim=True)
        values = (values - mean) * _per_image(contrast, values) + mean + _per_image(brightness, values)
        values = values.clamp_(0, 1) ** _per_image(gamma, values)
        chosen = [int(i) for i in blurred.nonzero()]
        if chosen:
            down, across = (sigma[chosen] * n / BLUR_WINDOW for n in size)
            values[chosen] = gaussian_blur(values[chosen], down, across)
        return (values + grain.to(values.device) * _per_image(noise, values)).to(images.dtype)


def _symmetry(generator: Generator, count: int, window: Size) -> Tensor:
    """One of the eight symmetries of a square, or of the four of a frame that is not square."""
    quarters = integers(generator, 0, 3, count)
    if window[0] != window[1]:
        quarters = quarters // 2 * 2
    side = 2.0 * integers(generator, 0, 1, count).double() - 1
    return matrices.quarter_turns(quarters) @ matrices.scaling(side, torch.ones_like(side))


def _smooth(knots: Tensor, size: Size) -> Tensor:
    return F.interpolate(knots, size, mode="bicubic", align_corners=True)


def _per_image(parameters: Tensor, values: Tensor) -> Tensor:
    return parameters.to(values)[:, None, None, None]
