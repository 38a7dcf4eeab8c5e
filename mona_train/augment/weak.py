"""The weak view (method 5.1): quarter turn and mirror, or a small rotation, or a resized crop, or nothing."""

from __future__ import annotations

import torch
from torch import Generator

from mona_train.augment import matrices
from mona_train.augment.draw import Range, Size, integers, uniform
from mona_train.augment.geometry import Geometry

BRANCHES = (0.5, 0.25, 0.125, 0.125)  # the published chain of `elif random() > 0.5`
ANGLES = (-20, 19)  # whole degrees, numpy.random.randint(-20, 20)
CROP: Range = (0.8, 1.0)  # side of the crop; the published crop returned the image unchanged (difference 9)


def weak(generator: Generator, count: int, size: Size) -> Geometry:
    """One geometry per image of (rows, columns).

    A frame that is not square keeps its shape: it is rotated by 0 or 180 degrees only.
    """
    branch = torch.multinomial(torch.tensor(BRANCHES), count, replacement=True, generator=generator)
    quarters = integers(generator, 0, 3, count)
    if size[0] != size[1]:
        quarters = quarters // 2 * 2
    axis = 2.0 * integers(generator, 0, 1, count).double() - 1
    angle = integers(generator, *ANGLES, count).double()
    side = uniform(generator, CROP, count)
    place = uniform(generator, (-1, 1), 2, count) * (1 - side)  # the crop's centre, so that it stays in the frame
    choices = [
        matrices.quarter_turns(quarters) @ matrices.scaling(axis, -axis),
        matrices.rotation(angle, size),
        matrices.translation(*place) @ matrices.scaling(side, side),
        matrices.identity(count),
    ]
    return Geometry((torch.stack(choices)[branch, torch.arange(count)],))
