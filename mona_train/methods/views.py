"""The views that stages use: weak, or MONA's strong chain; image, labels and confidence move together."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mona_train.augment import ACR, Geometry, Strength, View, cutmix, diffeo, jitter, weak
from mona_train.augment.draw import Size
from mona_train.methods.base import Step


def size_of(images: Tensor) -> Size:
    return images.shape[-2], images.shape[-1]


def weak_view(generator: Generator, images: Tensor, labels: Tensor | None = None) -> View:
    """method 5.1 on images (B, 1, H, W) and labels (B, H, W); shares no memory with them."""
    return weak(generator, len(images), size_of(images)).apply(images, labels)


def weak_batch(step: Step) -> tuple[Tensor, Tensor]:
    """Weak views of all images of a step, the labelled ones first, and the labels of those: n = len(labels)."""
    view = weak_view(step.generator, step.labelled.images, step.labelled.labels)
    assert view.labels is not None
    if step.unlabelled is None:
        return view.images, view.labels
    return torch.cat([view.images, weak_view(step.generator, step.unlabelled.images).images]), view.labels


def mixed_view(
    generator: Generator,
    images: Tensor,
    labels: Tensor | None = None,
    confidence: Tensor | None = None,
    *,
    after: Geometry | None = None,
    ignore: int = 0,
) -> View:
    """A strong view without jitter: diffeomorphic warp (one coin per batch) and CutMix (always), 5.3 and 5.4.

    Pseudo-labels made on a weak view are given with that view and move with it.  `after` is a geometry that has not
    been applied to the images yet: both are then applied in one resampling.
    """
    warp = diffeo(generator, len(images), device=images.device)
    view = (warp if after is None else after.then(warp)).apply(images, labels, confidence, ignore=ignore)
    mix = cutmix(generator, len(images), size_of(images), device=images.device)
    return View(*(None if maps is None else mix.of(maps) for maps in view))


def strong_view(
    generator: Generator,
    images: Tensor,
    labels: Tensor | None = None,
    confidence: Tensor | None = None,
    *,
    after: Geometry | None = None,
    ignore: int = 0,
    strength: Strength = ACR,
) -> View:
    """`mixed_view`, then jitter (5.2) of the image only: labels and confidence have no brightness."""
    view = mixed_view(generator, images, labels, confidence, after=after, ignore=ignore)
    return view._replace(images=jitter(generator, view.images, strength))
