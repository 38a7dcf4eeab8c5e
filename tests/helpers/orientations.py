"""The 48 ways to store one volume, and oblique angles to try them at."""

import itertools

import numpy as np

TURNS = [
    (axes, flips) for axes in itertools.permutations(range(3)) for flips in itertools.product((False, True), repeat=3)
]


def rotation(a, b, c):
    """Rotate about z, y, x by degrees."""
    out = np.eye(3)
    for angle, (u, v) in zip(np.deg2rad([a, b, c]), ((0, 1), (0, 2), (1, 2)), strict=True):
        turn = np.eye(3)
        turn[[u, v], [u, v]] = np.cos(angle)
        turn[u, v], turn[v, u] = -np.sin(angle), np.sin(angle)
        out = turn @ out
    return out


ANGLES = [(0, 0, 0), (10, -20, 30), (45, 0, 0), (0, 45, 0), (0, 0, 45), (45, 45, 0), (45, 35.264, 30), (60, 60, 60)]


def restored(voxels, affine, axes, flips):
    """The same scan as another scanner might store it."""
    shape = np.array(voxels.shape)
    turned = affine.copy()
    for axis, flip in enumerate(flips):
        if flip:
            turned[:3, 3] += turned[:3, axis] * (shape[axis] - 1)
            turned[:3, axis] *= -1
    voxels = voxels[tuple(slice(None, None, -1 if f else None) for f in flips)].transpose(axes)
    turned[:3, :3] = turned[:3, list(axes)]
    return voxels, turned
