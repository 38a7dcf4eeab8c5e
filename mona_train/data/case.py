"""`Case` and `Adapter`: what a dataset on disk is made of, and the one thing a new dataset has to provide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mona_infer.task import Task
from mona_infer.volume import Volume

Part = Literal["train", "val", "test"]


@dataclass(frozen=True)
class Case:
    """One volume of one patient, not yet read.

    A case whose image is missing is still a case: reading it says what is missing, and `files` holds what is there.
    """

    name: str  # unique in its dataset, as the published lists spell it: patient001_frame01
    patient: str  # the unit of every split: all cases of a patient stay together
    files: tuple[Path, ...]  # what it is read from; hashed into the cache's manifest
    image: Callable[[], Volume]
    label: Callable[[], Volume] | None  # ids of the Task on the file's own grid (`on_grid_of`); None: no label
    part: Part | None = None  # where the dataset itself says so


@dataclass(frozen=True)
class Adapter:
    """How one kind of dataset lies on disk.  A module in `adapters/` with an ADAPTER in it is a new dataset."""

    name: str  # what `--dataset` takes
    title: str
    recognises: Callable[[Path], bool]  # is this folder laid out like that?
    task: Callable[[Path], Task]
    cases: Callable[[Path], list[Case]]  # in a fixed order; raises InputError that names what is missing
    source: str  # where the data is obtained
    licence: str
    layout: str  # the folder expected, as a user would draw it, on one line; empty: nothing is needed on disk
    volumes: int | None = None  # of every patient, where the dataset promises a number (ACDC: both frames)
    remarks: Callable[[Path], list[str]] | None = None  # sentences on what is left out on purpose
    files: Callable[[Path], list[Path]] | None = None  # all scans and labels there: one that no case uses is reported
    label_name: Callable[[Case], str] | None = None  # what the label of an unlabelled case would be called
