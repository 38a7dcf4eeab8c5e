"""The built-in data set: short-axis cine MR stacks of a beating heart, drawn in millimetres from a seed.

It stands in for ACDC (five equal groups of patients, two frames each) in the demo and in the tests. The heart is
a set of closed contours in polar coordinates about the left ventricle, laid over a thorax made of ellipses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from numpy.random import SeedSequence, default_rng

from mona_infer.volume import Volume
from mona_train.phantom.anatomy import LV, MYO, RV, Anatomy, Grid, Outlines
from mona_train.phantom.paint import TONES, acquire, paint_heart, thorax

__all__ = ["FRAMES", "LV", "MYO", "RV", "PhantomCase", "heart", "phantom"]

Frame = Literal["ED", "ES"]
Split = Literal["train", "val", "test"]
FRAMES: tuple[Frame, Frame] = ("ED", "ES")


@dataclass(frozen=True, eq=False)
class PhantomCase:
    """One frame of one patient."""

    patient: str
    frame: Frame
    split: Split
    image: Volume  # int16
    label: Volume  # uint8: 0 background, 1 RV, 2 Myo, 3 LV

    @property
    def name(self) -> str:
        """As in the lists of ACDC: frame01 is end-diastole, frame02 end-systole."""
        return f"{self.patient}_frame{FRAMES.index(self.frame) + 1:02d}"


def phantom(seed: int = 0, train: int = 24, val: int = 4, test: int = 8) -> Iterator[PhantomCase]:
    """Both frames of every patient; patients count from 1 through train, val and test."""
    counts: dict[Split, int] = {"train": train, "val": val, "test": test}
    splits = (split for split, count in counts.items() for _ in range(count))
    for patient, split in enumerate(splits, start=1):
        for frame in FRAMES:
            yield heart(patient, frame, seed=seed, split=split)


def heart(patient: int, frame: Frame, *, seed: int = 0, split: Split = "train") -> PhantomCase:
    """One case, a function of (seed, patient, frame) alone; the frames differ in contraction and noise."""
    streams = SeedSequence([seed, patient]).spawn(7)
    shape, place, contrast, body, texture, scanner = (default_rng(s) for s in streams[:6])
    noise = default_rng(streams[6].spawn(2)[FRAMES.index(frame)])

    anatomy = Anatomy.draw(patient, shape)
    grid = Grid.draw(anatomy, place)
    tones = {tissue: contrast.uniform(*span) for tissue, span in TONES.items()}
    picture = thorax(grid, tones, body)
    outlines = Outlines.trace(grid, anatomy if frame == "ED" else anatomy.systole(), texture)
    paint_heart(picture, grid, outlines, tones, texture)
    image = Volume(acquire(picture, grid, scanner, noise).T, grid.affine, source="phantom", modality="MR")
    return PhantomCase(f"patient{patient:03d}", frame, split, image, image.with_voxels(outlines.label().T))
