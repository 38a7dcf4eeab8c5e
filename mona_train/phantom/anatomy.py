"""The shape of one heart: its measures, where the scanner's grid lies in it, and its outlines on that grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from mona_train.phantom.fields import Array, smooth

RV, MYO, LV = 1, 2, 3

# ACDC's groups: LV pool radius and wall in mm at end-diastole, ejection fraction, depth of the RV in mm.
GROUPS = {
    "normal": (24.5, 8.0, 0.60, 32.0),
    "infarct": (27.5, 7.4, 0.34, 30.0),
    "dilated": (32.0, 6.6, 0.26, 30.0),
    "hypertrophic": (22.5, 12.0, 0.64, 30.0),
    "right ventricle": (24.0, 7.6, 0.52, 41.0),
}


@dataclass(frozen=True)
class Anatomy:
    """The heart of one patient in one frame: millimetres, radians."""

    length: float  # base to apex
    pool: float  # radius of the LV pool at its widest
    wall: float
    ejection: float  # fraction of the pool
    rv_depth: float  # from septum to free wall, at the base
    rv_span: float  # half the angle the RV takes about the LV
    rv_end: float  # fraction of the length at which the RV ends
    septum: float  # direction in which the RV lies
    lobes: tuple[float, float, float, float]  # cos 2θ, sin 2θ, cos 3θ, sin 3θ of the pool's outline
    uneven: tuple[float, float]  # cos θ, sin θ of the wall: a thick septum, a thinned infarct
    flat: float  # how far the RV pushes the septum in
    outflow: float  # depth down to which the aortic outflow opens the ring
    base: float = 0.0  # depth of the base below its place at end-diastole

    @staticmethod
    def draw(patient: int, rng: Generator) -> Anatomy:
        group = list(GROUPS)[patient % len(GROUPS)]  # five patients in a row hold one of each
        pool, wall, ejection, rv_depth = GROUPS[group]
        size = rng.normal(1, 0.1)
        amount = rng.uniform(0.5, 1.2) * {"hypertrophic": 0.4, "infarct": -0.35}.get(group, 0.1)
        thickest = rng.normal(0, 0.5) if group == "hypertrophic" else rng.uniform(-math.pi, math.pi)
        a, b, c, d = rng.normal(0, [0.05, 0.05, 0.025, 0.025]).tolist()
        return Anatomy(
            length=size * rng.uniform(76, 94) + 0.4 * (pool - 25),
            pool=size * pool * rng.uniform(0.9, 1.1),
            wall=wall * rng.uniform(0.82, 1.2),
            ejection=float(np.clip(ejection + rng.normal(0, 0.06), 0.22, 0.68)),
            rv_depth=size * rv_depth * rng.uniform(0.8, 1.2),
            rv_span=rng.uniform(1.0, 1.4),
            rv_end=rng.uniform(0.72, 0.92),
            septum=math.pi + rng.normal(0.25, 0.22),
            lobes=(a, b, c, d),
            uneven=(amount * math.cos(thickest), amount * math.sin(thickest)),
            flat=rng.uniform(0.1, 0.3) if group == "right ventricle" else rng.uniform(0, 0.08),
            outflow=rng.uniform(-6, 9),
        )

    def systole(self) -> Anatomy:
        """The base descends, the pool loses its ejection fraction, and the wall keeps its volume."""
        shorter = 1 - 0.22 * self.ejection
        pool = self.pool * math.sqrt((1 - self.ejection) / shorter)
        outer = math.sqrt(pool**2 + ((self.pool + self.wall) ** 2 - self.pool**2) / shorter)
        return replace(
            self,
            length=shorter * self.length,
            base=(1 - shorter) * self.length,
            pool=pool,
            wall=outer - pool,
            rv_depth=self.rv_depth * (1 - 0.6 * self.ejection),
        )


@dataclass(frozen=True, eq=False)
class Grid:
    """Where the voxels lie in the frame of `ORGANS`: the origin is the axis of the LV."""

    x: Array
    y: Array
    depth: Array  # k 1 1: below the base at end-diastole
    pixel: float
    affine: NDArray[np.float64]

    @staticmethod
    def draw(anatomy: Anatomy, rng: Generator) -> Grid:
        pixel, thickness = rng.uniform(1.4, 1.9), rng.uniform(8, 10)
        field = rng.uniform(190, 235)
        width, height = (int(np.clip(f / pixel, 112, 160)) for f in (field, field * rng.uniform(0.88, 1)))
        slices = int(np.clip((anatomy.length + rng.uniform(8, 26)) // thickness, 7, 11))
        depth = thickness * (np.arange(slices) - rng.uniform(-0.2, 1.3))[:, None, None]

        turn = np.deg2rad(np.clip(rng.normal(0, 20), -45, 45))
        turned = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])  # x y from i j
        steps = np.meshgrid(np.arange(width) - width / 2, np.arange(height) - height / 2)
        plane = pixel * np.tensordot(turned, steps, 1)
        plane += rng.normal([-12, 4], 8)[:, None, None]  # the RV lies beside the origin, to the left
        corner = plane[:, 0, 0]
        bent = plane + 5 * np.stack([smooth(rng, (height, width), 55 / pixel) for _ in "xy"])
        # The stack follows the long axis imperfectly, and each slice is a breath-hold of its own.
        drift = rng.normal(0, 1.6, (2, slices, 1, 1)) + rng.normal(0, 0.08, (2, 1, 1, 1)) * (depth - 40)
        x, y = (bent[:, None] + drift).astype(np.float32)

        # World directions: from base to apex is left, forward and down. Short-axis views look from the apex, so
        # (i, j, k) with k towards the apex is left-handed.
        apex = unit(np.array([-0.64, 0.64, -0.42]) + rng.normal(0, 0.06, 3))
        across = np.array([-0.75, -0.65, 0.05])
        across = unit(across - (across @ apex) * apex)
        body = np.stack([across, np.cross(across, apex)], axis=1)
        affine = np.eye(4)
        affine[:3, :2] = pixel * body @ turned
        affine[:3, 2] = thickness * apex
        affine[:3, 3] = rng.normal([-15, 5, 10], 10) + body @ corner + depth[0, 0, 0] * apex
        return Grid(x, y, depth.astype(np.float32), pixel, affine)


@dataclass(frozen=True, eq=False)
class Outlines:
    """The heart's contours as radii about the LV axis, for every voxel's direction."""

    rho: Array  # the voxel's own radius
    along: Array  # k 1 1: 0 at the base, 1 at the apex
    endo: Array
    epi: Array
    free_wall: Array  # of the RV; equals `epi` away from it
    soft: Array  # k 1 1: mm over which an edge fades
    toward: tuple[float, float]  # unit vector from LV to RV

    @staticmethod
    def trace(grid: Grid, heart: Anatomy, rng: Generator) -> Outlines:
        toward = math.cos(heart.septum), math.sin(heart.septum)
        rho = np.sqrt(grid.x**2 + grid.y**2) + np.float32(1e-3)
        cos = (grid.x * toward[0] + grid.y * toward[1]) / rho  # of the angle from the septum, positive in front
        sin = (grid.y * toward[0] - grid.x * toward[1]) / rho
        theta = np.arctan2(sin, cos)
        depth = grid.depth - np.float32(heart.base)
        along = depth / np.float32(heart.length)

        a, b, c, d = heart.lobes
        lobes = 1 + a * (cos**2 - sin**2) + b * 2 * sin * cos + c * (4 * cos**3 - 3 * cos) + d * (3 * sin - 4 * sin**3)
        pool = heart.pool * taper(depth / (heart.length - 0.7 * heart.wall))
        outer = (heart.pool + heart.wall) * taper(along)
        endo = pool * (lobes - heart.flat * np.clip(cos, 0, 1) ** 2)
        # Two pixels of wall at least, or the ring would leak.
        wall = (outer - pool) * (1 + heart.uneven[0] * cos + heart.uneven[1] * sin)
        epi = endo + np.maximum(wall, np.float32(4) * (pool > 0))
        gap = np.clip(2 - np.abs(theta - 0.7) / 0.3, 0, 1) * (depth < heart.outflow)
        endo = endo + gap * (epi - endo)

        span = heart.rv_span * (1 - 0.35 * np.clip(along, 0, 1))
        crescent = np.clip(1 - np.abs((theta + 0.12) / span) ** 2.4, 0, 1) ** 0.75
        crescent *= heart.rv_depth * np.clip(1 - np.clip(along / heart.rv_end, 0, 1) ** 1.9, 0, 1) ** 0.8
        crescent *= 1 - np.float32(0.5) * (along < 0)  # only the outflow of the RV rises above the base
        crescent *= 1 + 0.05 * smooth(rng, rho.shape, 18 / grid.pixel)
        # Near the apex the radius changes within the thickness of one slice, which blurs the edge.
        soft = grid.pixel + 0.6 * np.abs(np.gradient(outer, axis=0))
        return Outlines(rho, along, endo, epi, epi + crescent, soft.astype(np.float32), toward)

    def label(self) -> NDArray[np.uint8]:
        ventricle = (self.along >= 0) & (self.along < 1)
        label = np.zeros(self.rho.shape, np.uint8)
        for value, edge in ((RV, self.free_wall), (MYO, self.epi), (LV, self.endo)):
            label[(self.rho < edge) & ventricle] = value
        return label


def taper(along: Array) -> Array:
    """Radius along the ventricle: a little narrower at the base, closed at the apex."""
    base = 1 - 0.12 * np.clip(1 - along / 0.3, 0, 1) ** 2
    return np.asarray(base * np.clip(1 - np.clip(along, 0, 1) ** 2.4, 0, 1) ** 0.55, np.float32)


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vector / np.linalg.norm(vector))
