"""The image that a scanner takes: thorax, heart and similar-looking organs, then bias field and noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mona_train.phantom.anatomy import Grid, Outlines
from mona_train.phantom.fields import Array, cover, ellipse, over, smooth

Tones = dict[str, float]

# Lowest and highest signal of a tissue over patients, blood being about 1. They are wide and overlap on purpose: a
# network that has seen the contrast of three patients takes fat, stomach or liver of the next one for a ventricle.
TONES = {
    "blood": (0.75, 1.15),
    "right blood": (0.70, 1.20),
    "muscle": (0.18, 0.50),
    "fat": (0.12, 1.60),
    "mediastinum": (0.12, 1.10),
    "lung": (0.03, 0.35),
    "liver": (0.15, 1.20),
    "spleen": (0.20, 1.20),
    "stomach": (0.05, 1.30),
    "bone": (0.15, 1.10),
}

# Neighbours: tissue, centre and radii in mm from the LV (x to the patient's left and back, y to the feet), wall in
# mm, where in the stack (0 first slice, 1 last) the organ is widest, and how far it reaches from there.
Organ = tuple[str, tuple[float, float], tuple[float, float], float, float, float]
ORGANS: tuple[Organ, ...] = (
    ("bone", (72, 88), (24, 21), 3, 0.0, 1.2),
    ("liver", (-62, 112), (112, 66), 0, 1.2, 1.6),
    ("spleen", (104, 62), (24, 40), 0, 0.9, 0.8),
    ("stomach", (46, 84), (33, 22), 4, 0.9, 0.9),
    ("blood", (62, 54), (12, 12), 2.5, 0.0, 1.3),  # descending aorta
    ("blood", (-22, 66), (13, 9), 1.5, 0.3, 0.7),  # inferior vena cava
)


def thorax(grid: Grid, tones: Tones, rng: Generator) -> Array:
    """Everything but the heart: chest wall, lungs with vessels, and organs that can be mistaken for a ventricle."""
    x, y, pixel, shape = grid.x, grid.y, grid.pixel, grid.x.shape
    stack = np.linspace(0, 1, shape[0], dtype=np.float32)[:, None, None]
    skin = ellipse(x, y, rng.normal([28, 22], 9).tolist(), rng.normal([152, 112], 8).tolist(), rng.normal(0, 0.15))
    skin += 3 * smooth(rng, shape[1:], 30 / pixel)
    ribs = 0.4 + 0.4 * np.sin(int(rng.integers(12, 20)) * np.arctan2(y - 22, x - 28) + rng.uniform(0, 6))
    muscle = skin + rng.uniform(5, 22)
    lung = muscle + rng.uniform(9, 18)
    picture = tones["fat"] * cover(skin, pixel)
    over(picture, cover(muscle, pixel), np.asarray(tones["muscle"] * (1 - ribs) + tones["bone"] * ribs, np.float32))
    over(picture, cover(lung, pixel), tones["lung"])
    vessels = np.clip(1.5 * smooth(rng, shape, 4.5 / pixel) - 2.4, 0, 1) * rng.uniform(0.4, 1)
    over(picture, vessels * cover(lung + 4, pixel), tones["blood"])

    radii = [r * (1.1 - 0.6 * stack) for r in rng.uniform([42, 36], [66, 56]).tolist()]
    mediastinum = ellipse(x, y, rng.normal([6, 22], 8).tolist(), radii, rng.uniform(-0.6, 0.6))
    mediastinum += 5 * smooth(rng, shape[1:], 20 / pixel)
    over(picture, cover(mediastinum, pixel), tones["mediastinum"] * (1 + 0.1 * smooth(rng, shape, 8 / pixel)))

    for tissue, centre, size, wall, widest, reach in (*ORGANS, *(loop(rng) for _ in range(rng.integers(3, 8)))):
        swell = rng.uniform(0.75, 1.25) * np.sqrt(np.clip(1 - ((stack - widest) / reach) ** 2, 1e-4, 1))
        outline = ellipse(x, y, rng.normal(centre, 8).tolist(), [r * swell for r in size], rng.normal(0, 0.3))
        outline += 1.5 * smooth(rng, shape[1:], 14 / pixel)
        over(picture, cover(outline - wall, pixel), tones["muscle"])
        over(picture, cover(outline, pixel), tones[tissue] * (1 + 0.08 * smooth(rng, shape, 8 / pixel)))
    return picture


def loop(rng: Generator) -> Organ:
    """A round, bright, thick-walled pool (bowel, a varix) below or beside the heart, which looks like an LV."""
    angle, away, radius = rng.uniform(-0.7, 2.8), rng.uniform(64, 100), rng.uniform(8, 22)
    radii = radius, radius * rng.uniform(0.7, 1)
    centre = away * math.cos(angle), away * math.sin(angle)
    return "blood", centre, radii, rng.uniform(3, 8), rng.uniform(0, 1), rng.uniform(0.3, 0.8)


def paint_heart(picture: Array, grid: Grid, lines: Outlines, tones: Tones, rng: Generator) -> None:
    """From the outside in: epicardial fat, RV wall and pool, myocardium, LV pool; then what lies above the base."""
    x, y, pixel, shape = grid.x, grid.y, grid.pixel, grid.x.shape
    rho, along, soft = lines.rho, lines.along, lines.soft
    ventricle = (along >= 0) & (along < 1)
    atrium = (along > -0.35) & (along < 0)
    ripple = smooth(rng, shape, 4 / pixel)
    blood = tones["blood"] * (1 + 0.06 * smooth(rng, shape, 16 / pixel))

    surface = lines.free_wall + 3.5 * (lines.free_wall > lines.epi)
    fat = surface + rng.uniform(2, 10) * (1 + 0.6 * smooth(rng, shape[1:], 25 / pixel))
    over(picture, cover(rho - fat, soft) * ((along > -0.35) & (along < 1.1)), tones["fat"])
    over(picture, cover(rho - surface, soft) * ventricle, tones["muscle"])
    over(picture, cover(rho - surface, soft) * atrium, tones["mediastinum"])

    # Trabeculae and papillary muscles are dark, but part of the pool, as in ACDC's labels.
    trabeculae = np.clip(0.8 * ripple - 0.5, 0, 1)
    crescent = lines.free_wall - lines.epi
    in_rv = cover(rho - lines.free_wall, soft) * cover(lines.epi - rho, soft) * (crescent > 0.3) * (ventricle | atrium)
    over(picture, in_rv, blood * (tones["right blood"] / tones["blood"]) * (1 - 0.5 * trabeculae))
    over(picture, cover(rho - lines.epi, soft) * ventricle, tones["muscle"] * (1 + 0.07 * ripple))
    dark = trabeculae * np.clip(3 * rho / np.maximum(lines.endo, 1) - 2, 0, 1) * np.clip(0.5 + 0.5 * along, 0, 1)
    across = -lines.toward[1], lines.toward[0]
    reach = 0.62 * lines.endo.mean(axis=(1, 2), keepdims=True)
    for side in (-1, 1):
        c, s = math.cos(at := rng.normal(2.05, 0.25)), side * math.sin(at)
        centre = [reach * (c * t + s * a) for t, a in zip(lines.toward, across, strict=True)]
        size = np.clip(1 - ((along - 0.55) / 0.4) ** 2, 0.01, 1) * rng.uniform(3, 5.5)
        dark = np.maximum(dark, cover(ellipse(x, y, centre, (size, size), 0), 2 * pixel) * (size > 1))
    over(picture, cover(rho - lines.endo, soft) * ventricle, blood + (tones["muscle"] - blood) * 0.9 * dark)

    # Above the base lie atrium and aortic root: as bright as ventricles, thin-walled, not labelled.
    width = lines.epi[0].mean()
    for shift, radii in ((-0.25, (0.55 * width, 0.72 * width)), (0.55, (12, 13))):
        room = ellipse(x, y, [shift * width * t for t in lines.toward], radii, math.atan2(*lines.toward[::-1]))
        over(picture, cover(room - 2, pixel) * atrium, tones["muscle"])
        over(picture, cover(room, pixel) * atrium, blood)


def acquire(picture: Array, grid: Grid, scanner: Generator, noise: Generator) -> NDArray[np.int16]:
    """What the scanner does: point spread, coil sensitivity, contrast, Rician noise, units of its own."""
    blur = scanner.uniform(0.1, 0.25)  # wraps round at the borders, as a field of view does
    for axis in (1, 2):
        picture = (1 - 2 * blur) * picture + blur * (np.roll(picture, 1, axis) + np.roll(picture, -1, axis))
    left, top = scanner.normal([-70, -60], 45).tolist()
    bias = np.exp(-np.sqrt((grid.x - left) ** 2 + (grid.y - top) ** 2) / scanner.uniform(70, 220))
    bias *= np.exp(scanner.uniform(0.15, 0.45) * smooth(scanner, picture.shape[1:], 60 / grid.pixel))
    signal = np.clip(picture / 1.2, 0, None) ** scanner.uniform(0.65, 1.5) * bias / bias.mean()
    real, imaginary = scanner.uniform(0.02, 0.06) * noise.standard_normal((2, *picture.shape), dtype=np.float32)
    magnitude = scanner.uniform(250, 1800) * np.sqrt((signal + real) ** 2 + imaginary**2)
    return np.asarray(magnitude.round().astype(np.int16))
