"""`Augmentation`: which views a run trains on.  Stages ask for views and never know which kind they get.

Everything is drawn in the frame of the window that the network sees.  Slices may be larger than it (the canvas), so
that what rotates or moves into the window is the slice itself and not black.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Generator, Tensor

from mona_train.augment import matrices
from mona_train.augment.draw import Size
from mona_train.augment.equivariance import Equivariance
from mona_train.augment.geometry import Geometry
from mona_train.augment.intensity import Strength
from mona_train.augment.sampling import View

Device: TypeAlias = torch.device | str


class Augmentation(ABC):
    @property
    def limits(self) -> Equivariance:
        """Of the transform T of L_eqv."""
        return Equivariance()

    @abstractmethod
    def within(self, generator: Generator, count: int, window: Size, device: Device) -> Geometry:
        """One geometry per image, in the window's frame."""

    @abstractmethod
    def warp(self, generator: Generator, count: int, device: Device) -> Geometry | None:
        """What a strong view adds to the geometry, in the window's frame; None: nothing."""

    @abstractmethod
    def appearance(self, generator: Generator, images: Tensor, strength: Strength | None) -> Tensor:
        """Images (B, 1, H, W) with other intensities; strength is the published one, None for a weak view."""

    def geometry(self, generator: Generator, count: int, canvas: Size, window: Size, device: Device) -> Geometry:
        """`within` of the window at the centre of a canvas: one resampling from the canvas to the view."""
        drawn = self.within(generator, count, window, device)
        return drawn if canvas == window else centre(count, canvas, window).then(drawn)

    def view(
        self, generator: Generator, images: Tensor, labels: Tensor | None = None, *, window: Size | None = None
    ) -> View:
        """A view of images (B, 1, H, W) and labels (B, H, W); shares no memory with them.  No window: all of them."""
        canvas = images.shape[-2], images.shape[-1]
        window = canvas if window is None else window
        return self.geometry(generator, len(images), canvas, window, images.device).apply(images, labels, size=window)


def centre(count: int, canvas: Size, window: Size) -> Geometry:
    """The window at the centre of a canvas; where canvas - window is even, pixel centres fall on pixel centres."""
    shares = [(w - 1) / (c - 1) for w, c in zip(window, canvas, strict=True)]
    down, across = (torch.full((count,), share, dtype=torch.float64) for share in shares)
    return Geometry((matrices.scaling(across, down),))
