"""Pictures of slices with their labels, for looking at, not for measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mona_infer.io.atomic import atomic_path
from mona_infer.task import Task

TILE = 192  # pixels along a tile's longer side
CAPTION = 16  # pixels for the text above a tile
Picture = NDArray[np.uint8]  # rows columns 3


def overlay(plane: NDArray[Any], labels: NDArray[Any] | None, task: Task) -> Picture:
    """A grey slice (0..1) with each class tinted and outlined in its colour."""
    grey = np.clip(plane, 0, 1)[..., None] * 255 * np.ones(3)
    for c in task.classes[1:] if labels is not None else ():
        inside = labels == c.id
        padded = np.pad(inside, 1)
        deep = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        strength = np.where(inside & ~deep, 0.9, 0.3) * inside
        grey += strength[..., None] * (np.array(c.colour) - grey)
    return np.asarray(grey, np.uint8)


def square_pixels(picture: Picture, spacing: tuple[float, float]) -> Picture:
    """Repeat rows or columns so that a millimetre is equally long in both directions."""
    finest = min(spacing)
    rows, columns = (
        np.arange(round(n * s / finest)) * finest / s for n, s in zip(picture.shape, spacing, strict=False)
    )
    return np.asarray(picture[rows.astype(int)][:, columns.astype(int)])


def montage(path: Path, tiles: list[list[tuple[str, Picture]]], legend: Task | None = None) -> None:
    """Write rows of captioned tiles as one PNG; rows may differ in length.  `legend` adds a line with its classes."""
    columns = max(len(row) for row in tiles)
    height = len(tiles) * (TILE + CAPTION + 4) + 4 + (CAPTION if legend else 0)
    sheet = Image.new("RGB", (columns * (TILE + 4) + 4, height), (24, 24, 24))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=11)
    for r, row in enumerate(tiles):
        for c, (caption, picture) in enumerate(row):
            x, y = 4 + c * (TILE + 4), 4 + r * (TILE + CAPTION + 4)
            scale = TILE / max(picture.shape[:2])
            size = round(picture.shape[1] * scale), round(picture.shape[0] * scale)
            sheet.paste(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC), (x, y + CAPTION))
            draw.text((x, y), caption, (230, 230, 230), font)
    at = 4.0
    for label in legend.classes[1:] if legend else ():
        draw.text((at, height - CAPTION), label.name, label.colour, font)
        at += draw.textlength(label.name, font) + 12
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def bars(path: Path, title: str, shares: dict[str, float], colours: list[tuple[int, int, int]]) -> None:
    """A bar for each class, largest first, on a logarithmic axis, to show the long tail of a task."""
    width, height, left, bottom = 120 + 90 * len(shares), 360, 64, 44
    sheet = Image.new("RGB", (width, height), (255, 255, 255))
    draw, font, black = ImageDraw.Draw(sheet), ImageFont.load_default(size=12), (30, 30, 30)
    smallest = min((v for v in shares.values() if v > 0), default=1e-4)
    decades = max(1, int(np.ceil(-np.log10(smallest / 3))))  # a third, so that the smallest bar is visible
    top, floor = 40, height - bottom

    def y(share: float) -> float:
        return floor if share <= 0 else floor - (floor - top) * max(0.0, 1 + np.log10(share) / decades)

    draw.text((left, 8), title, black, ImageFont.load_default(size=14))
    for decade in range(decades + 1):
        share = 10.0**-decade
        draw.line([(left, y(share)), (width - 16, y(share))], (215, 215, 215))
        draw.text((6, y(share) - 7), f"{100 * share:g} %", black, font)
    order = sorted(range(len(shares)), key=lambda n: -list(shares.values())[n])
    for place, n in enumerate(order):
        name, share = list(shares.items())[n]
        x = left + 20 + 90 * place
        draw.rectangle([x, y(share), x + 56, floor], colours[n], black)
        draw.text((x + 28, y(share) - 16), f"{100 * share:.3g} %", black, font, anchor="ma")
        draw.text((x + 28, floor + 6), name, black, font, anchor="ma")
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")
