"""What the tests of `read_dicom` share: voxels to write, and reading without a warning or a second sentence."""

from __future__ import annotations

import warnings
import zipfile

import numpy as np
import pytest

from mona_infer.errors import InputError
from mona_infer.io.dicom.read import read_dicom

BUDGET = 1 << 24
AXIAL = np.array([[-0.8, 0, 0, 90.0], [0, -1.2, 0, 120.0], [0, 0, 2.5, -40.0], [0, 0, 0, 1]])


def scan(shape=(6, 5, 4), dtype=np.int16, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def read(path, **options):
    """Read with warnings as errors: none may get out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_dicom(path, budget=options.pop("budget", BUDGET), **options)


def refused(path, *words, kind=InputError, **options):
    """The one sentence with which `path` is refused."""
    with pytest.raises(kind) as caught:
        read(path, **options)
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert str(word) in said
    return said


def rotation(axis, degrees):
    axis, angle = np.array(axis) / np.linalg.norm(axis), np.radians(degrees)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def zipped(path, folder, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(folder.rglob("*"), reverse=True):
            archive.write(file, f"../../{file.relative_to(folder)}")  # a name that must not become a path
    return path
