"""What a model with a card refuses, and what it must never refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from helpers.orientations import rotation
from numpy.typing import NDArray

from mona_infer import Volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.models.card import ScanKind
from mona_infer.segmenting.scan_kind import contradictions
from mona_infer.segmenting.warnings import training_differences
from mona_infer.task import CARDIAC

# That of ACDC, as in tools/bundle_model.py.
POSSIBLE = {"slices": (1, 50), "depth": (0, 350), "in-plane spacing": (0.2, 5), "field of view": (90, 1000)}
USUAL = {"slices": (5, 20), "in-plane spacing": (1.37, 1.68), "slice spacing": (5, 10)}
HEART = ScanKind("a short-axis stack", POSSIBLE, USUAL, oblique=True)
SEEN = {"in-plane spacing": (1.5, 1.5), "slice spacing": (10.0, 10.0), "field of view": (231.0, 768.0)}
TASK = replace(CARDIAC, long_side=192, window=(96, 96), orientation="portrait", seen=SEEN)
OBLIQUE = rotation(35, 40, 20)


def scan(
    shape: tuple[int, int, int],
    spacing: tuple[float, float, float],
    turn: NDArray[np.float64] | None = None,
    low: int = 0,
    **of_volume: Any,
) -> Volume:
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    if turn is not None:
        affine[:3, :3] = turn @ affine[:3, :3]
        affine[:3, 3] = 20, -30, 40
    voxels = np.full(shape, 100, np.int16)
    voxels[0, 0, shape[2] // 2] = low
    return Volume(voxels, affine, **of_volume)


def told(volume: Volume) -> list[str]:
    return training_differences(SliceStack(volume, TASK), HEART)


OWN = {
    "ACDC": ((216, 256, 10), (1.5, 1.5, 10)),
    "ACDC, a quarter turn away": ((256, 216, 8), (1.37, 1.37, 5)),
    "the fewest and most slices of ACDC": ((154, 224, 18), (1.68, 1.68, 10)),
    "its largest slices": ((428, 512, 6), (1.5, 1.5, 10)),
    "genuine spacing of those": ((428, 512, 6), (0.7, 0.7, 8)),
    "a coarse scanner": ((128, 104, 12), (2.8, 2.8, 8)),
    "interpolated": ((512, 512, 14), (0.68, 0.68, 8)),
    "lost spacing": ((216, 256, 10), (1, 1, 1)),
    "lost in the plane": ((216, 256, 12), (1, 1, 8)),
    "gaps": ((216, 256, 6), (1.4, 1.4, 25)),
    "thin slices": ((256, 256, 30), (1.4, 1.4, 4)),
    "one slice": ((256, 208, 1), (1.4, 1.4, 8)),
    "cropped": ((96, 96, 10), (1.4, 1.4, 8)),
    "a child": ((192, 160, 9), (1.0, 1.0, 6)),
}


@pytest.mark.parametrize("name", OWN)
def test_a_scan_of_the_models_own_kind_is_never_refused(name: str) -> None:
    shape, spacing = OWN[name]
    for turn, modality, low in product((None, OBLIQUE), (None, "MR"), (0, -200)):
        assert contradictions(scan(shape, spacing, turn, low, modality=modality), TASK, HEART) == []


def test_nor_in_any_storage_order() -> None:
    volume = scan((54, 64, 10), (6 * 0.8, 6 * 0.8, 10), OBLIQUE)
    for axes in permutations(range(3)):
        stored = Volume(volume.voxels.transpose(axes), volume.affine[:, [*axes, 3]])
        assert contradictions(stored, TASK, HEART) == []


OTHERS = {
    "abdominal CT": (scan((128, 128, 90), (3, 3, 5), low=-1024), "it has 90 slices"),
    "a short CT": (scan((128, 128, 30), (3, 3, 5), low=-1024), "intensities go down to -1024, as those of CT do"),
    "cardiac CT": (scan((128, 128, 48), (1.6, 1.6, 2), OBLIQUE), "48 slices 2 mm apart"),
    "brain, 3-D": (scan((64, 64, 44), (4, 4, 4)), "not a stack of thick slices"),
    "brain, sagittal": (scan((176, 60, 60), (1, 4, 4)), "it has 60 slices"),
    "hippocampus": (scan((35, 51, 35), (1, 1, 1)), "field of view is 51 mm"),
    "functional MR": (scan((64, 64, 36), (3.5, 3.5, 3.5)), "not a stack of thick slices"),
    "a mouse": (scan((256, 256, 10), (0.1, 0.1, 1)), "in-plane spacing is 0.1 mm"),
    "diffusion of the whole body": (scan((64, 64, 50), (6, 6, 10)), "depth is 500 mm"),
    "microns taken for millimetres": (scan((216, 256, 10), (0.0015, 0.0015, 0.01)), "field of view is 0.384 mm"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_plainly_is_something_else(name: str) -> None:
    volume, why = OTHERS[name]
    assert re.search(why, " and ".join(contradictions(volume, TASK, HEART)))


def test_intensities_of_ct_are_looked_for_only_where_nothing_says_what_the_scan_is() -> None:
    for volume, task, found in (
        (scan((128, 128, 10), (3, 3, 8), low=-1024), TASK, 1),
        (scan((128, 128, 10), (3, 3, 8), low=-1024, modality="MR"), TASK, 0),
        (scan((128, 128, 10), (3, 3, 8), low=-1024), replace(TASK, modality="CT"), 0),
        (scan((128, 128, 10), (3, 3, 8), low=1024, slope=-1.0), TASK, 1),
        (scan((128, 128, 10), (3, 3, 8), low=0, intercept=-1024.0), TASK, 1),
    ):
        assert len(contradictions(volume, task, HEART)) == found


def test_doubts_are_told_in_words() -> None:
    assert told(scan((216, 256, 10), (1.5, 1.5, 10))) == []
    assert told(scan((216, 256, 10), (1.5, 1.5, 10), OBLIQUE, modality="MR")) == []
    assert told(scan((256, 216, 10), (1.5, 1.5, 10), OBLIQUE)) == []  # a scanner says how they lie: nothing is turned
    for volume, words in (
        (scan((216, 256, 3), (1.5, 1.5, 10)), "it has 3 slices; in training there were 5 to 20"),
        (scan((216, 256, 1), (1.5, 1.5, 10)), "it has 1 slice; in training"),
        (scan((216, 256, 10), (0.8, 0.8, 10)), "its in-plane spacing is 0.8 mm; in training it was 1.37 to 1.68"),
        (
            scan((216, 256, 10), (1.5, 1.5, 10), modality="MR"),
            "its slices are axial, which a short-axis stack never is",
        ),
        (scan((216, 256, 10), (1.5, 1.5, 10), rotation(0, 0, 5)), "its slices are axial"),
        (scan((256, 216, 10), (1.5, 1.5, 10)), "wider than high and the file does not say how they lie"),
        (scan((216, 256, 10), (1, 1, 1)), "it has no thick slices"),
    ):
        assert [w for w in told(volume) if words in w], (words, told(volume))


def test_a_model_without_a_card_warns_as_ever() -> None:
    stack = SliceStack(scan((256, 216, 3), (1.5, 1.5, 10), modality="MR"), TASK)
    assert training_differences(stack) == []
