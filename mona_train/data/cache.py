"""The memory-mapped cache of slices that training reads: at the network's size, ready to be batched.

    images.npy     uint16 (slices, rows, columns): intensity 0..1 in steps of 1/65535
    labels.npy     uint8  (labelled slices, rows, columns): class indices of the Task
    manifest.json  the Task, every case and the position of its slices, and the SHA-256 of every source file
    looks/         first looks trained on these slices (see `mona_train.engine.first_look`)

Slices of a case are in the world order of `mona_infer.geometry.slicing`, whatever order the scanner stored them in.
Slices that keep their shape differ in size from case to case: each is in the middle of an array that holds the largest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.task import Task, centred

FORMAT = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class CachedCase:
    """The position of a case's slices, and what splits and statistics need to know about the case."""

    name: str
    patient: str
    part: str | None
    first: int  # row of its first slice in images.npy
    slices: int
    first_label: int | None  # row of its first label in labels.npy; None: no label
    reversed: bool  # stored in the opposite order: published slice numbers count from the other end
    shape: tuple[int, int, int]  # slices, rows, columns as scanned
    spacing: tuple[float, float, float]  # mm, as scanned
    low: float  # the intensities that became 0 and 1
    high: float
    voxels: tuple[int, ...]  # per class, as scanned; empty without a label
    content: tuple[float, ...]  # per slice: share of pixels that are not (nearly) black
    image_hash: str  # of the intensities: two names for one image have the same hash
    frame: tuple[int, int] | None = None  # rows and columns of its slices, if the cached ones are larger

    @property
    def rows(self) -> range:
        return range(self.first, self.first + self.slices)

    @property
    def label_rows(self) -> dict[int, int]:
        """Row in images.npy -> row in labels.npy."""
        return {} if self.first_label is None else {row: self.first_label + n for n, row in enumerate(self.rows)}


@dataclass(frozen=True, eq=False)
class Cache:
    folder: Path
    dataset: str
    task: Task  # with the scale of the slices, but no window yet
    cases: tuple[CachedCase, ...]
    sources: dict[str, Any]  # file -> size, mtime_ns, sha256
    images: NDArray[np.uint16]
    labels: NDArray[np.uint8]
    geometry: str = ""  # the scale and why, in words

    def frame_of(self, case: CachedCase) -> tuple[slice, slice]:
        """The rows and columns of the cached arrays that a case's slices fill."""
        rows, columns = self.images.shape[1:]
        return centred((rows, columns), case.frame or (rows, columns))

    @classmethod
    def open(cls, folder: Path) -> Cache:
        manifest = read_manifest(folder)
        if manifest is None:
            raise InputError(f"{folder} is not a prepared data set; prepare it with `mona data prepare`")
        try:
            cases = tuple(_case(entry) for entry in manifest["cases"])
            images = np.load(folder / "images.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False)
            task = Task.from_json(json.dumps(manifest["task"]))
            geometry = str(manifest["geometry"])
            return cls(folder, manifest["dataset"], task, cases, manifest["sources"], images, labels, geometry)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"{folder} is damaged ({error}); delete it and run `mona data prepare` again") from error


def default_folder(adapter: str, data: Path, size: tuple[int, int], pixels: int = 0) -> Path:
    """Where `mona train` and `mona data prepare` put the cache of a data set by default."""
    stem = data.resolve().name if adapter == "folder" else adapter
    return Path("cache") / f"{stem}-{pixels or f'{size[0]}x{size[1]}'}"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished cache in the current format, or None."""
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if found.get("format") == FORMAT else None


def manifest(facts: dict[str, Any], task: Task, cases: list[CachedCase], sources: dict[str, Any]) -> str:
    parts = {"format": FORMAT, **facts, "task": json.loads(task.to_json())}
    return json.dumps({**parts, "cases": [asdict(case) for case in cases], "sources": sources}, indent=1)


def _case(entry: dict[str, Any]) -> CachedCase:
    listed = {f.name for f in fields(CachedCase) if str(f.type).startswith("tuple")}
    values: dict[str, Any] = {
        key: tuple(value) if key in listed and value is not None else value for key, value in entry.items()
    }
    return CachedCase(**values)
