"""The data set behind the page: its cases, and a correction saved as a case's label, the old one kept.

Two kinds of folder.  One with a dataset.json, as `mona train --dataset` takes it: labels are saved where the next
training finds them.  Any other folder of scans, as `mona segment` takes it: labels are saved beside it, in
FOLDER-labels.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.dataset_folder import classes_of, read_about, test_scans, training_scans
from mona_infer.io.formats import CASES, NIFTI, stem
from mona_infer.io.naming import patients_of
from mona_infer.io.nifti import write_mask
from mona_infer.io.nrrd_write import nrrd_writer
from mona_infer.io.pairing import reference_names
from mona_infer.io.read import label_ids, read_volume
from mona_infer.segmenting.jobs import find_jobs
from mona_infer.serving.state import read_json, write_json
from mona_infer.task import LabelClass
from mona_infer.volume import Volume

KEPT, SAVED = "labels-before", "saved.json"  # beside the labels' folder; which labels were saved from here


@dataclass(frozen=True)
class Case:
    name: str
    patient: str
    image: Path
    label: Path | None  # the file, if there is one
    place: Path  # where its label is saved
    test: bool = False

    @property
    def key(self) -> str:
        """Names what the server keeps of this image: another image of the same name has another key."""
        found = self.image.stat()
        text = f"{self.name}\n{found.st_size}\n{found.st_mtime_ns}"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]


class Dataset:
    def __init__(self, folder: Path, *, keep_names: bool = False) -> None:
        self.folder, self._keep_names = folder, keep_names
        self.trains = (folder / "dataset.json").is_file()
        self._lock = threading.Lock()
        self.cases()  # refused now rather than by the first request

    @property
    def name(self) -> str:
        return str((read_about(self.folder).get("name") if self.trains else None) or self.folder.resolve().name)

    @property
    def classes(self) -> tuple[LabelClass, ...] | None:
        """None where only a model knows them."""
        return classes_of(self.folder, read_about(self.folder)) if self.trains else None

    @property
    def kept(self) -> Path:
        return self.folder / KEPT if self.trains else self.folder.with_name(f"{self.folder.name}-{KEPT}")

    def cases(self) -> dict[str, Case]:
        """As the folder is now: scans and labels may come and go while the server runs."""
        return self._training_cases() if self.trains else self._loose_cases()

    def _training_cases(self) -> dict[str, Case]:
        about = read_about(self.folder)
        parts = (("labelsTr", training_scans(self.folder, about)), ("labelsTs", test_scans(self.folder, about)))
        patients = patients_of([name for _, found in parts for name in found])
        return {
            name: Case(name, patients[name], image, label, _place(label, self.folder / labels, name), labels[-1] == "s")
            for labels, found in parts
            for name, (image, label) in sorted(found.items())
            if image.is_file()
        }

    def _loose_cases(self) -> dict[str, Case]:
        labels = self.folder.with_name(f"{self.folder.name}-labels")
        jobs, _ = find_jobs(self.folder, labels)
        named = {self._loose_name(job.name, job.scan): job.scan for job in jobs}
        patients = patients_of(list(named))
        beside = {parent: _files(parent) for parent in {scan.parent for scan in named.values()}}
        return {
            name: Case(name, patients[name], scan, _label_of(scan, place, beside[scan.parent]), place)
            for name, scan in named.items()
            for place in [labels / f"{name}.nii.gz"]
        }

    def _loose_name(self, name: str, scan: Path) -> str:
        """A folder or zip of DICOM is usually named after its patient."""
        if self._keep_names or not (scan.is_dir() or scan.suffix.lower() == ".zip"):
            return name.replace("/", "__")
        return f"dicom-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"

    def labelled(self, case: Case, saved: dict[str, Any]) -> str:
        if case.label is None:
            return "none"
        return "corrected" if case.name in saved else "given"

    def saved(self) -> dict[str, Any]:
        """What was saved from here: case -> when, and the hash of the file."""
        return read_json(self.kept / SAVED) or {}

    def image(self, case: Case) -> Volume:
        return read_volume(case.image)

    def label(self, case: Case, image: Volume) -> Volume | None:
        """The label on the grid of its image."""
        return None if case.label is None else on_grid_of(read_volume(case.label), image)

    def save_label(self, case: Case, sent: Volume, ids: set[int]) -> bool:
        """Save a label on its scan's own grid; whether it differs from what was there.

        It may be stored in another order of axes, but must lie on the scan's grid and hold none but `ids`.
        """
        image = self.image(case)
        label = on_grid_of(sent, image)
        voxels = label_ids(label)
        unknown = sorted({int(i) for i in np.unique(voxels)} - ids)
        if unknown:
            raise InputError(
                f"the label contains id {unknown[0]}, which is not a class here; the ids are {sorted(ids)}"
            )
        with self._lock:
            if case.label is not None:
                try:
                    before = label_ids(on_grid_of(read_volume(case.label), image))
                except InputError:  # damaged, or on no grid: worth replacing, and kept
                    before = None
                if before is not None and np.array_equal(before, voxels):
                    return False
            version = self._keep_old(case)
            _write(case.place, image.with_voxels(voxels))
            digest = hashlib.sha256(case.place.read_bytes()).hexdigest()
            entry = {"file": case.place.name, "sha256": digest, "saved": time.time(), "version": version}
            write_json(self.kept / SAVED, {**self.saved(), case.name: entry})
        return True

    def _keep_old(self, case: Case) -> int:
        """Copy a label that is about to be replaced to NAME.N.nii.gz in `kept`."""
        self.kept.mkdir(parents=True, exist_ok=True)
        if case.label is None:
            return 1
        ending = case.label.name[len(stem(case.label)) :]
        number = 1
        while (old := self.kept / f"{case.name}.{number}{ending}").exists():
            number += 1
        partial = old.with_name(f".{old.name}")
        shutil.copy2(case.label, partial)
        partial.rename(old)
        if self.trains and case.label != case.place:
            case.label.unlink()  # in a format that mona does not write, it would stand beside the new one
        return number + 1


def _place(label: Path | None, folder: Path, name: str) -> Path:
    if label is not None and label.name.endswith((*NIFTI, ".nrrd")):
        return label
    return folder / f"{name}.nii.gz"


def _files(folder: Path) -> dict[str, Path]:
    return {stem(path): path for path in sorted(folder.iterdir()) if path.name.lower().endswith(CASES)}


def _label_of(scan: Path, place: Path, beside: dict[str, Path]) -> Path | None:
    """A saved label first, then a reference beside the scan, as in ACDC."""
    if place.is_file():
        return place
    found = next((beside[name] for name in reference_names(stem(scan)) if name in beside), None)
    return None if found == scan else found


def _write(path: Path, label: Volume) -> None:
    if path.name.endswith(".nrrd"):
        with nrrd_writer(path, label) as write:
            write(label)
    else:
        write_mask(path, label)
