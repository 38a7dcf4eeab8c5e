"""Two files may store the same volume in different axis orders; this puts one in the other's order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mona_infer.errors import InputError
from mona_infer.volume import Volume

TOLERANCE = 0.01  # voxels, at the volume's corners: allows for rounded headers, not for shifted grids


def on_one_grid(volume: Volume, other: Volume) -> tuple[Volume, Volume]:
    """Both on the grid of `other`, or on the grid of `volume` if only that one has every slice."""
    if not other.sparse:
        return on_grid_of(volume, other), other
    if not volume.sparse:
        return volume, on_grid_of(other, volume)
    from mona_infer.geometry.align_sparse import around_both

    grid = around_both(volume, other)
    return on_grid_of(volume, grid), on_grid_of(other, grid)


def other_names(volume: Volume, other: Volume) -> list[str]:
    """A note for each label id with different names in the two masks: they may be different structures."""
    return [
        f"label {label} is {name!r} in {volume.source} but {other.names[label]!r} in {other.source}"
        for label, name in volume.names.items()
        if other.names.get(label, name).lower() != name.lower()
    ]


def on_grid_of(volume: Volume, other: Volume) -> Volume:
    """`volume` with its axes permuted and flipped to the grid of `other`; an error if the grids differ."""
    if volume.sparse:
        from mona_infer.geometry.align_sparse import placed

        on_other = placed(volume, other)
        if on_other is not None:
            return on_other
    to_other = np.linalg.solve(other.affine, volume.affine)  # voxel indices of `volume` to those of `other`
    turn = np.rint(to_other[:3, :3])
    is_turn = (np.abs(turn).sum(axis=0) == 1).all() and (np.abs(turn).sum(axis=1) == 1).all()
    if is_turn:
        axes = np.abs(turn).argmax(axis=1)  # axis n of `other` is stored axis axes[n]
        voxels = volume.voxels.transpose(axes)
        steps = tuple(slice(None, None, -1 if turn[n, a] < 0 else None) for n, a in enumerate(axes))
        if voxels.shape == other.shape and _corners_agree(volume, other, to_other, turn):
            return replace(volume, voxels=voxels[steps], affine=other.affine, header=other.header)
    raise InputError(
        f"{volume.source} and {other.source} are not on the same grid: "
        f"{_describe(volume)} and {_describe(other)}; resample one onto the other first"
    )


def _corners_agree(volume: Volume, other: Volume, to_other: np.ndarray, turn: np.ndarray) -> bool:
    """Whether each corner voxel lands on the corner that the rotation predicts, within the tolerance."""
    last = np.array(volume.shape) - 1
    corners = np.array(np.meshgrid(*[(0, n) for n in last], indexing="ij")).reshape(3, -1)
    shift = np.where(turn.sum(axis=1) < 0, np.array(other.shape) - 1, 0)
    expected = turn @ corners + shift[:, None]
    actual = to_other[:3, :3] @ corners + to_other[:3, 3:]
    return bool(np.abs(actual - expected).max() <= TOLERANCE)


def _describe(volume: Volume) -> str:
    shape = "x".join(map(str, volume.shape))
    spacing = "x".join(f"{s:.3g}" for s in volume.spacing)
    origin = ", ".join(f"{v:.2f}" for v in volume.affine[:3, 3])
    return f"{shape} voxels of {spacing} mm from ({origin})"
