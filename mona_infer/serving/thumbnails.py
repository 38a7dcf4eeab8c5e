"""A small picture of a case: the slice that its mask fills most, else the middle one."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import numpy as np
from PIL import Image

from mona_infer.geometry.slicing import slicing
from mona_infer.io.atomic import atomic_path
from mona_infer.io.read import label_ids, read_volume
from mona_infer.serving.state import State
from mona_infer.task import LabelClass, Task
from mona_infer.viewing.pictures import TILE, overlay, square_pixels
from mona_infer.volume import Volume

DARKEST, BRIGHTEST = 1, 99.5  # percentiles


class Thumbnails:
    def __init__(self, state: State) -> None:
        self._folder = state.thumbnails
        self._one_at_a_time = threading.Lock()  # a page of cases asks for all of them at once

    def of(self, key: str, image: Path, mask: Path | None, classes: tuple[LabelClass, ...]) -> Path:
        """A PNG; made again when the scan or its mask has changed."""
        mark = f"{key}\n{mask}\n{mask.stat().st_mtime_ns if mask is not None else 0}"
        path = self._folder / f"{hashlib.sha256(mark.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.png"
        with self._one_at_a_time:
            if not path.exists():
                draw(path, read_volume(image, frame=0), read_volume(mask, frame=0) if mask else None, classes)
        return path


def draw(path: Path, scan: Volume, mask: Volume | None, classes: tuple[LabelClass, ...]) -> None:
    way = slicing(scan.affine, "stack")
    slices = way.view(scan.voxels)
    labels = way.view(label_ids(mask)) if mask is not None and mask.shape == scan.shape else None
    filled = np.array([np.count_nonzero(plane) for plane in labels]) if labels is not None else np.zeros(1)
    k = int(filled.argmax()) if filled.any() else len(slices) // 2
    plane = scan.intensities(slices[k])
    low, high = np.nanpercentile(plane, [DARKEST, BRIGHTEST])
    grey = np.nan_to_num((plane - low) / max(float(high - low), 1e-9))
    picture = overlay(grey, labels[k] if labels is not None else None, Task("thumbnail", classes))
    _, rows, columns = way.reorder(scan.spacing)
    square = square_pixels(picture, (rows, columns))
    scale = TILE / max(square.shape[:2])
    size = max(1, round(square.shape[1] * scale)), max(1, round(square.shape[0] * scale))
    with atomic_path(path) as temporary:
        Image.fromarray(square).resize(size, Image.Resampling.BICUBIC).save(temporary, format="PNG")
