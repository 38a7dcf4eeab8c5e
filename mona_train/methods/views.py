"""The views that stages use: weak, or MONA's strong chain; image, labels and confidence move together."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

from mona_train.augment import PUBLISHED, Augmentation, Geometry, Mix, Strength, View, copy_paste, cutmix, matrices
from mona_train.augment.draw import Size, uniform
from mona_train.methods.base import Step

Strengths: TypeAlias = Literal["weak", "strong"]


def size_of(images: Tensor) -> Size:
    return images.shape[-2], images.shape[-1]


def weak_view(step: Step, images: Tensor, labels: Tensor | None = None) -> View:
    """A view of images (B, 1, H, W) and labels (B, H, W) of a step; shares no memory with them."""
    return step.augment.view(step.generator, images, labels, window=step.window)


def weak_geometry(step: Step, images: Tensor) -> tuple[Geometry, Size]:
    """What `weak_view` would apply, to be combined with more, and the size of the view."""
    canvas = size_of(images)
    window = canvas if step.window is None else step.window
    return step.augment.geometry(step.generator, len(images), canvas, window, images.device), window


def weak_batch(step: Step, *, paste: bool = False) -> tuple[Tensor, Tensor]:
    """Weak views of all images of a step, the labelled ones first, and the labels of those: n = len(labels).

    Only labelled slices are pasted into each other.
    """
    view = weak_view(step, step.labelled.images, step.labelled.labels)
    if paste:
        view = pasted(step.generator, view)
    assert view.labels is not None
    if step.unlabelled is None:
        return view.images, view.labels
    return torch.cat([view.images, weak_view(step, step.unlabelled.images).images]), view.labels


def seen_with(step: Step, images: Tensor, how: Strengths, strength: Strength) -> Tensor:
    """Images as one of the networks sees them: as they are, or a copy with other intensities (difference 6)."""
    return step.augment.appearance(step.generator, images, strength) if how == "strong" else images


def noise(generator: Generator, images: Tensor, sigma: float, limit: float) -> Tensor:
    """Normal noise, clipped; drawn on the CPU, so that a seed gives the same run on every device."""
    return (sigma * torch.randn(images.shape, generator=generator)).clamp(-limit, limit).to(images)


def crop(generator: Generator, side: Tensor) -> Geometry:
    """Crops with these sides (shares of the frame's) at uniform places in it, resized to the frame: its shape stays."""
    place = uniform(generator, (-1, 1), 2, len(side)) * (1 - side)  # a crop's centre
    return Geometry((matrices.translation(*place) @ matrices.scaling(side, side),))


def pasted(generator: Generator, view: View) -> View:
    """Half of the images show a box of the next one."""
    return mixed(view, copy_paste(generator, len(view.images), size_of(view.images), device=view.images.device))


def mixed(view: View, mix: Mix) -> View:
    return View(*(None if maps is None else mix.of(maps) for maps in view))


def mixed_view(
    generator: Generator,
    images: Tensor,
    labels: Tensor | None = None,
    confidence: Tensor | None = None,
    *,
    augment: Augmentation = PUBLISHED,
    after: Geometry | None = None,
    window: Size | None = None,
    ignore: int = 0,
) -> View:
    """A strong view without jitter: diffeomorphic warp (one coin per batch) and CutMix (always), 5.3 and 5.4.

    Pseudo-labels made on a weak view are given with that view and move with it.  `after` is a geometry that has not
    been applied to the images yet: both are then applied in one resampling, to a view of the window's size.
    """
    warp = augment.warp(generator, len(images), images.device)
    if after is None:
        after = Geometry.identity(len(images)) if warp is None else warp
    elif warp is not None:
        after = after.then(warp)
    view = after.apply(images, labels, confidence, size=window, ignore=ignore)
    return mixed(view, cutmix(generator, len(images), size_of(view.images), device=images.device))
