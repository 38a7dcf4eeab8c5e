"""`Case`: one volume of a data set.  `Adapter`: the one thing that a new data set has to provide."""

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

    A case whose image is missing is still a case: reading it reports what is missing; `files` are those that exist.
    """

    name: str  # unique in its dataset, as the published lists spell it: patient001_frame01
    patient: str  # the unit of every split: all cases of a patient stay together
    files: tuple[Path, ...]  # the files it is read from; their hashes go into the cache's manifest
    image: Callable[[], Volume]
    label: Callable[[], Volume] | None  # ids of the Task on the file's own grid (`on_grid_of`); None: no label
    part: Part | None = None  # if the data set itself defines one


@dataclass(frozen=True)
class Adapter:
    """How one kind of data set is stored.  Any module in `adapters/` that defines ADAPTER is a data set."""

    name: str  # what `--dataset` takes
    title: str
    recognises: Callable[[Path], bool]  # does this folder have this layout?
    task: Callable[[Path], Task]
    cases: Callable[[Path], list[Case]]  # in a fixed order; raises InputError naming what is missing
    source: str  # where the data is obtained
    licence: str
    layout: str  # the expected folder, as a user would sketch it, on one line; empty: no files are needed
    volumes: int | None = None  # per patient, if the data set guarantees a number (ACDC: two frames)
    remarks: Callable[[Path], list[str]] | None = None  # warnings about scans that are left out on purpose
    files: Callable[[Path], list[Path]] | None = None  # all scans and labels; those that no case uses are reported
    label_name: Callable[[Case], str] | None = None  # the file name that an unlabelled case's label should have
    # Of slices that keep their shape: their ruler (some files have no spacing) and `Task.orientation`
    ruler: Literal["mm", "pixels"] = "mm"
    orientation: str = "world"
