"""Copy-paste: a box of 2/3 x 2/3 of an image shows another one, between labelled slices or with unlabelled ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mona_train.augment.cutmix import Mix
from mona_train.augment.draw import Size, coins, uniform

SIDE = 2 / 3  # of the image
PROBABILITY = 0.5


def copy_paste(generator: Generator, count: int, size: Size, *, device: torch.device | str = "cpu") -> Mix:
    """Half of the images show a box of the next image of the batch."""
    box = boxes(generator, count, size).logical_and_(coins(generator, PROBABILITY, count, 1, 1))
    return Mix(~box.to(device), torch.arange(1, count + 1, device=device) % count)


class Pairs(NamedTuple):
    """Mixed images: which labelled and which unlabelled image each one shows, and where the labelled one."""

    labelled: Tensor  # M int64
    unlabelled: Tensor  # M int64
    known: Tensor  # M H W bool: pixels of the labelled image

    def of(self, labelled: Tensor, unlabelled: Tensor) -> Tensor:
        """The mixed maps of (n, H, W) or (n, C, H, W) and (m, ...)."""
        known = self.known if labelled.ndim == 3 else self.known[:, None]
        return torch.where(known, labelled[self.labelled], unlabelled[self.unlabelled])


def bidirectional(
    generator: Generator,
    labelled: int,
    unlabelled: int,
    size: Size,
    *,
    whole: float = 0.0,
    device: torch.device | str = "cpu",
) -> Pairs:
    """Bidirectional copy-paste: n images with a labelled box in an unlabelled image, then n the other way round.

    n is the larger number of images; the others are used again.  Images are paired anew for the second half.
    `whole` is the probability that a box is the whole image: nothing is mixed, and the network also learns from
    pictures like those that it will be asked about.
    """
    n = max(labelled, unlabelled)
    each = torch.arange(n)
    box = boxes(generator, 2 * n, size).logical_or_(coins(generator, whole, 2 * n, 1, 1))
    box[n:].logical_not_()
    first, second = torch.cat([each, each]) % labelled, torch.cat([each, each + 1]) % unlabelled
    return Pairs(first.to(device), second.to(device), box.to(device))


def boxes(generator: Generator, count: int, size: Size) -> Tensor:
    """One box for each image (count, H, W), at a uniform place."""
    inside = []
    for n, share in zip(size, uniform(generator, (0, 1), 2, count), strict=True):
        side = round(SIDE * n)
        first = (share * (n - side + 1)).long()[:, None]
        at = torch.arange(n)
        inside.append((at >= first) & (at < first + side))
    rows, columns = inside
    return rows[:, :, None] & columns[:, None, :]
