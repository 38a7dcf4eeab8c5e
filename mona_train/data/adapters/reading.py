"""What the adapters share: finding files in a folder, and reading images and labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.dataset_folder import once
from mona_infer.io.formats import WHOLE as ENDINGS
from mona_infer.io.formats import stem
from mona_infer.io.read import label_ids, read_volume
from mona_infer.io.read import read_grid as grid
from mona_infer.volume import Volume

__all__ = ["ENDINGS", "files_below", "grid", "once", "read_image", "read_label", "scans_below", "stem"]


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and its subfolders, in a fixed order; follows links, skips hidden files and __MACOSX."""
    seen = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__MACOSX")
        yield from (Path(root, name) for name in sorted(names) if not name.startswith("."))


def scans_below(folder: Path) -> list[Path]:
    """Files that contain a scan or a label, judged by their extension."""
    return [path for path in files_below(folder) if path.name.lower().endswith(ENDINGS)]


def read_image(path: Path, modality: str | None, label: Path | None = None) -> Volume:
    """The scan at `path`; if it does not exist, the error names its `label`."""
    if label is not None and not path.exists():
        raise InputError(
            f"{label} is the label of {path.name}, but {path} does not exist; add the scan or remove the label"
        )
    volume = read_volume(path)
    return replace(volume, modality=modality) if modality else volume


def read_label(path: Path, image: Path | None = None) -> Volume:
    """Label ids on the label's own grid, or on its image's if the label has no geometry.

    LiTS has label files written without any geometry: 1 mm, no rotation, origin (0, 0, 0) or (1, 1, 1), for scans of
    0.8 x 0.8 x 2.5 mm (nnUNet#2751).  Their voxels are in the same order as the scan's.
    """
    volume = read_volume(path)
    volume = replace(volume, voxels=label_ids(volume), slope=1.0, intercept=0.0)
    if image is None or not image.is_file() or not _has_no_geometry(volume.affine):
        return volume
    _, affine = grid(image)
    if np.array_equal(affine, volume.affine):
        return volume
    note = "the label's header has no geometry; the image's geometry is used"
    return replace(volume, affine=affine, header=None, notes=(*volume.notes, note))


def _has_no_geometry(affine: NDArray[np.float64]) -> bool:
    origin = affine[:3, 3]
    return np.array_equal(affine[:3, :3], np.eye(3)) and ((origin == 0).all() or (origin == 1).all())
