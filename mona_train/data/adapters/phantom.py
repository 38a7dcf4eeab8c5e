"""The built-in phantom: drawn when it is read, so there are no files and the folder is ignored."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from mona_infer.task import CARDIAC
from mona_infer.volume import Volume
from mona_train.data.case import Adapter, Case, Part
from mona_train.phantom import FRAMES, Frame, heart

PATIENTS: dict[Part, int] = {"train": 24, "val": 4, "test": 8}  # the defaults of `phantom`
# Slices are 112 to 160 pixels wide; their median is rounded up to a multiple of 32, as in `folder`.
TASK = replace(CARDIAC, name="phantom", size=(160, 160))


def cases(folder: Path) -> list[Case]:
    parts = [part for part, count in PATIENTS.items() for _ in range(count)]
    return [
        Case(
            name=f"patient{patient:03d}_frame{order:02d}",
            patient=f"patient{patient:03d}",
            files=(),
            image=partial(_image, patient, frame),
            label=partial(_label, patient, frame),
            part=part,
        )
        for patient, part in enumerate(parts, start=1)
        for order, frame in enumerate(FRAMES, start=1)
    ]


# A label is read right after its image, so one drawing serves both; 8 are enough for the threads at work.
_drawn = lru_cache(maxsize=8)(heart)


def _image(patient: int, frame: Frame) -> Volume:
    return _drawn(patient, frame).image


def _label(patient: int, frame: Frame) -> Volume:
    return _drawn(patient, frame).label


ADAPTER = Adapter(
    name="phantom",
    title="Phantom: drawn hearts, 36 patients, ED and ES",
    recognises=lambda folder: False,
    task=lambda folder: TASK,
    cases=cases,
    source="mona itself",
    licence="Apache-2.0",
    layout="",
    volumes=2,
)
