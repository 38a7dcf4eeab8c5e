"""From stored voxels to slices in a fixed anatomical order, based on geometry alone.

A network must see the same picture whether a scanner stored the volume head first or feet first, rows first or
columns first.  So every choice here depends on the *set* of voxel axes in space, never on their storage order
or sign.  World coordinates are NIfTI's RAS+: x increases to the patient's right, y to the front, z to the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError

WORLD_AXES = ("left-right", "posterior-anterior", "inferior-superior")
PLANES = ("sagittal", "coronal", "axial")  # of slices stacked along each of these
STACK_RATIO = 1.5  # slices are thick if their spacing is at least this many times that of both other axes
TIE = 1e-3  # direction cosines closer than this count as equal, so that rounding in a header does not decide
ORIGIN = 1e-3  # mm; a corner this close to the world's origin is there because no one put it elsewhere


@dataclass(frozen=True)
class Slicing:
    """Which stored axes are the slices, rows and columns, and which of them run backwards."""

    axes: tuple[int, int, int]
    flips: tuple[bool, bool, bool]

    def view(self, voxels: NDArray[Any]) -> NDArray[Any]:
        """Stored voxels viewed as (slices, rows, columns): not a copy, so writing to it changes the stored mask."""
        steps = tuple(slice(None, None, -1 if flip else None) for flip in self.flips)
        return voxels.transpose(self.axes)[steps]

    def reorder(self, per_axis: tuple[float, float, float]) -> tuple[float, float, float]:
        """Values per stored axis (a spacing), reordered to (slices, rows, columns)."""
        s, r, c = self.axes
        return per_axis[s], per_axis[r], per_axis[c]

    def turned(self) -> Slicing:
        """A quarter turn counter-clockwise in the plane, as numpy.rot90: the last column becomes the first row."""
        (slices, rows, columns), (along, down, across) = self.axes, self.flips
        return Slicing((slices, columns, rows), (along, not across, down))


def spread(slices: Sequence[int], most: int = 48) -> list[int]:
    """At most 48 evenly spaced slices, both ends among them: an organ that lies between two of them is none we know."""
    places = np.linspace(0, len(slices) - 1, min(most, len(slices)))
    return [slices[int(place)] for place in np.rint(places)]


def slicing(affine: NDArray[np.float64], rule: str, fallback: str = "inferior-superior") -> Slicing:
    """Choose the slice axis of a volume and the direction of its rows and columns.

    `rule` is a world axis, or "stack": the axis whose spacing is at least 1.5 times that of both others, else
    `fallback`.  Columns run along the in-plane axis nearest to left-right and rows along the other; both run
    towards left, posterior or inferior (the radiological view), slices towards right, anterior or superior.
    """
    matrix = np.asarray(affine, np.float64)[:3, :3]
    spacing = np.sqrt((matrix**2).sum(axis=0))
    directions = (matrix / spacing).T  # one unit vector per stored axis
    axis = _thick_axis(spacing) if rule == "stack" else None
    if axis is None:
        axis = _most(list(range(3)), directions, _world_axis(fallback if rule == "stack" else rule))
    rest = [a for a in range(3) if a != axis]
    columns = _most(rest, directions, 0)
    rows = next(a for a in rest if a != columns)
    towards = (1, -1, -1)
    flips = [_sign(directions[a]) != sign for a, sign in zip((axis, rows, columns), towards, strict=True)]
    return Slicing((axis, rows, columns), (flips[0], flips[1], flips[2]))


def oriented(
    affine: NDArray[np.float64],
    shape: tuple[int, int, int],
    orientation: str,
    rule: str,
    fallback: str = "inferior-superior",
) -> Slicing:
    """As `slicing`, if the orientation is "world".  The others are for data whose affines do not say it (ACDC).

    "stored": copies of such data come with an affine that a tool made up, a diagonal of spacings, where the original
    says diag(-, -, +) for the same array; so in a made-up affine x and y count as reversed.  "portrait": also, slices
    with more columns than rows, which that data stores a quarter turn away, are turned back.  An affine that is oblique
    was measured by a scanner, and says how such slices lie: turning them made every mask of a model trained on ACDC
    wrong.
    """
    if orientation != "world" and _made_up(affine, shape):
        affine = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    found = slicing(affine, rule, fallback)
    return found.turned() if orientation == "portrait" and _turned(affine, shape, found) else found


def _turned(affine: NDArray[np.float64], shape: tuple[int, int, int], found: Slicing) -> bool:
    _, rows, columns = found.axes
    return shape[columns] > shape[rows] and along_world_axes(affine)


def _made_up(affine: NDArray[np.float64], shape: tuple[int, int, int]) -> bool:
    """Whether the voxels start at the world's origin and go along its axes, in whichever order they are stored.

    The lowest corner of the box around all voxel centres does not depend on that order.
    """
    matrix = np.asarray(affine, np.float64)[:3, :3]
    ends = matrix * (np.array(shape) - 1)  # from the first voxel to the last, one column per stored axis
    lowest = affine[:3, 3] + np.minimum(ends, 0).sum(axis=1)
    return along_world_axes(affine) and bool(np.abs(lowest).max() <= ORIGIN)


def along_world_axes(affine: NDArray[np.float64]) -> bool:
    """Whether every stored axis goes exactly along one of the world's."""
    matrix = np.asarray(affine, np.float64)[:3, :3]
    along = np.abs(matrix) / np.sqrt((matrix**2).sum(axis=0))
    return bool((np.minimum(along, np.abs(1 - along)) <= TIE).all())


def body_plane(affine: NDArray[np.float64], axis: int, degrees: float) -> str | None:
    """The plane of slices stacked along a stored axis, if it lies within so many degrees of one of the body's."""
    across = np.asarray(affine, np.float64)[:3, axis]
    cosines = np.abs(across) / np.sqrt((across**2).sum())
    nearest = int(np.argmax(cosines))
    return PLANES[nearest] if cosines[nearest] >= np.cos(np.radians(degrees)) else None


def _world_axis(name: str) -> int:
    if name not in WORLD_AXES:
        raise InputError(f"unknown slice axis {name!r}; choose stack, {', '.join(WORLD_AXES)}")
    return WORLD_AXES.index(name)


def _thick_axis(spacing: NDArray[np.float64]) -> int | None:
    axis = int(np.argmax(spacing))
    others = np.delete(spacing, axis)
    return axis if (spacing[axis] >= (STACK_RATIO - TIE) * others).all() else None


def _most(axes: list[int], directions: NDArray[np.float64], world: int) -> int:
    """The stored axis closest to world axis `world`.

    Ties (an axis at exactly 45 degrees) are broken by the other world axes, then by the products of components,
    which distinguish the two diagonals of a plane; none of these depends on sign or storage order.
    """
    x, y, z = np.abs(directions).T
    first = [world, *(w for w in range(3) if w != world)]
    products = [directions[:, u] * directions[:, v] for u, v in ((0, 1), (0, 2), (1, 2))]
    for criterion in (*((x, y, z)[w] for w in first), *products):
        best = max(criterion[axes])
        axes = [a for a in axes if criterion[a] >= best - TIE]
        if len(axes) == 1:
            break
    return axes[0]


def _sign(direction: NDArray[np.float64]) -> int:
    """The sign of the largest component; if several are equal, of the first in x, y, z."""
    size = np.abs(direction)
    largest = next(w for w in range(3) if size[w] >= size.max() - TIE)
    return 1 if direction[largest] > 0 else -1
