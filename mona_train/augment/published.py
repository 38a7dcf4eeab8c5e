"""The published augmentation (method 5): the weak view, the diffeomorphic warp of a strong view, its jitter."""

from __future__ import annotations

from torch import Generator, Tensor

from mona_train.augment.augmentation import Augmentation, Device
from mona_train.augment.diffeo import diffeo
from mona_train.augment.draw import Size
from mona_train.augment.geometry import Geometry
from mona_train.augment.intensity import Strength, jitter
from mona_train.augment.weak import weak


class Published(Augmentation):
    def within(self, generator: Generator, count: int, window: Size, device: Device) -> Geometry:
        return weak(generator, count, window)

    def warp(self, generator: Generator, count: int, device: Device) -> Geometry:
        return diffeo(generator, count, device=device)

    def appearance(self, generator: Generator, images: Tensor, strength: Strength | None) -> Tensor:
        return images if strength is None else jitter(generator, images, strength)


PUBLISHED = Published()
