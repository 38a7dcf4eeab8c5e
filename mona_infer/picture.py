"""Pictures of slices with their labels: for looking, not for measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mona_infer.atomic import atomic_path
from mona_infer.task import Task

TILE = 192  # pixels of a tile's longer side
CAPTION = 16  # pixels of text above a tile
Picture = NDArray[np.uint8]  # rows columns 3


def overlay(plane: NDArray[Any], labels: NDArray[Any] | None, task: Task) -> Picture:
    """A slice in grey (0..1) with each class tinted and outlined in its colour."""
    grey = np.clip(plane, 0, 1)[..., None] * 255 * np.ones(3)
    for c in task.classes[1:] if labels is not None else ():
        inside = labels == c.id
        padded = np.pad(inside, 1)
        deep = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        strength = np.where(inside & ~deep, 0.9, 0.3) * inside
        grey += strength[..., None] * (np.array(c.colour) - grey)
    return np.asarray(grey, np.uint8)


def montage(path: Path, tiles: list[list[tuple[str, Picture]]]) -> None:
    """Write rows of captioned tiles as one PNG; rows may differ in length."""
    columns = max(len(row) for row in tiles)
    sheet = Image.new("RGB", (columns * (TILE + 4) + 4, len(tiles) * (TILE + CAPTION + 4) + 4), (24, 24, 24))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=11)
    for r, row in enumerate(tiles):
        for c, (caption, picture) in enumerate(row):
            x, y = 4 + c * (TILE + 4), 4 + r * (TILE + CAPTION + 4)
            scale = TILE / max(picture.shape[:2])
            size = round(picture.shape[1] * scale), round(picture.shape[0] * scale)
            sheet.paste(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC), (x, y + CAPTION))
            draw.text((x, y), caption, (230, 230, 230), font)
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")
