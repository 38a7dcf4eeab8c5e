"""Fills the holes of a class: background that the class surrounds in a slice."""

from __future__ import annotations

import numpy as np

from mona_infer.segmenting.components import filled, pieces, runs
from mona_kernels.native import Labels


def fill_holes(mask: Labels, label: int) -> None:
    """Give background that class `label` encloses in its slice (slices, rows, columns) to the class, in place.

    Enclosed is what cannot reach the slice's border without crossing the class, through sides of pixels; other
    classes in a hole stay as they are.
    """
    inside = mask == label
    extent = [np.nonzero(inside.any(axis=axes))[0] for axes in ((1, 2), (0, 2), (0, 1))]
    if not len(extent[0]):
        return
    box = tuple(slice(int(at[0]), int(at[-1]) + 1) for at in extent)
    # A margin joins all that reaches the box's border into one piece, to which the first line of a slice belongs.
    outside = np.pad(~inside[box], ((0, 0), (1, 1), (1, 1)), constant_values=True)
    _, height, width = outside.shape
    line, first, last = runs(outside)
    piece = pieces(line, first, last, height, width, across=False)
    margin = piece[np.searchsorted(line, line // height * height)]  # the piece of each slice's first line
    hole = piece != margin
    enclosed = filled(line[hole], first[hole], last[hole], outside.shape)
    part = mask[box]
    part[enclosed[:, 1:-1, 1:-1] & (part == 0)] = label
