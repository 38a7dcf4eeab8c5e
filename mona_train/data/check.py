"""`mona data check`: what is wrong with a data set, case by case; every message names the file.

Geometry is checked by `mona_infer.geometry.align.on_grid_of`: image and label may be stored in different axis orders,
and their headers may differ by up to 0.01 voxels at the volume's corners (rounding); more is an error.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.geometry.slicing import WORLD_AXES, slicing
from mona_infer.io.read import label_ids
from mona_infer.system.progress import progress
from mona_infer.task import Task
from mona_infer.volume import Volume
from mona_train.data.case import Adapter, Case
from mona_train.data.unused_files import unused

Severity = Literal["error", "warning"]
WORKERS = 2  # so at most two cases are in memory
PLAUSIBLE = (0.05, 20.0)  # mm between neighbours, from micro-CT to the thickest slices
UNUSUAL = 5.0  # times the median of the data set; LiTS alone spans 0.45 to 6 mm
STRAIGHT = 0.9  # cosine to a world axis; short-axis stacks are oblique, each at its own angle
ENOUGH = 4  # cases for a meaningful median


@dataclass(frozen=True)
class Problem:
    """An error means that a case cannot be used as it is; a warning is for the user to judge."""

    severity: Severity
    case: str  # empty: the data set as a whole
    file: str
    message: str  # one sentence that names the file


@dataclass
class Finding:
    """What is kept of a case after its voxels are freed."""

    case: Case
    problems: list[Problem] = field(default_factory=list)
    spacing: tuple[float, float, float] | None = None  # slices, rows, columns
    image: str = ""  # content hash
    label: str = ""
    ids: frozenset[int] = frozenset()  # in the label
    direction: str = ""  # the world axis along the slices; empty if they are oblique
    notes: set[str] = field(default_factory=set)

    @property
    def file(self) -> str:
        return str(self.case.files[0]) if self.case.files else self.case.name

    def add(self, severity: Severity, message: str, file: str | None = None) -> None:
        self.problems.append(Problem(severity, self.case.name, file or self.file, message))


def problems(adapter: Adapter, folder: Path) -> Iterator[Problem]:
    """Read every case once and report its problems, then those of the data set as a whole."""
    task, cases = adapter.task(folder), adapter.cases(folder)
    findings = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for finding in progress(pool.map(partial(examine, task=task), cases), len(cases), "checking"):
            yield from finding.problems
            findings.append(finding)
    yield from _repeated_names(cases)
    yield from _missing_volumes(cases, adapter.volumes)
    yield from _duplicates(findings)
    yield from _same_labels(findings)
    yield from _absent_classes(findings, task, folder)
    yield from _other_planes(findings)
    yield from _unusual_spacings(findings)
    yield from _notes(findings)
    if cases and not any(case.label for case in cases):
        yield Problem("error", "", str(folder), f"{folder}: none of the {len(cases)} cases has a label")
    for entry in unused(adapter, folder, cases):
        yield Problem("error" if entry.lost else "warning", "", str(entry.path), entry.message)
    for remark in adapter.remarks(folder) if adapter.remarks else ():
        yield Problem("warning", "", str(folder), remark)


def examine(case: Case, task: Task) -> Finding:
    """The problems of a single case."""
    finding = Finding(case)
    image = label = None
    try:
        image = case.image()
    except (InputError, OSError) as error:
        finding.add("error", str(error))
    try:
        label = case.label() if case.label else None
    except (InputError, OSError) as error:
        finding.add("error", str(error), str(case.files[-1]) if case.files else None)
    if image is not None:
        _examine_image(finding, image, task)
    if label is not None:
        try:
            _examine_label(finding, label, task)
            if image is not None:
                on_grid_of(label, image)
        except InputError as error:
            finding.add("error", str(error), label.source)
    return finding


def content_hash(volume: Volume) -> str:
    """SHA-256 of shape and intensities (as float32, in file order): equal for equal scans whatever their dtype."""
    digest = hashlib.sha256(repr(volume.shape).encode())
    for k in range(volume.shape[2]):
        plane = volume.intensities(volume.voxels[:, :, k])
        plane += 0.0  # -0.0 is 0.0
        digest.update(plane.astype("<f4", copy=False).tobytes(order="F"))
    return digest.hexdigest()


def _examine_image(finding: Finding, image: Volume, task: Task) -> None:
    cut = slicing(image.affine, task.slices, task.fallback)
    finding.spacing = cut.reorder(image.spacing)
    finding.direction = _direction(image, cut.axes[0])
    finding.image = content_hash(image)
    finding.notes |= set(image.notes)
    if not all(PLAUSIBLE[0] <= s <= PLAUSIBLE[1] for s in image.spacing):
        finding.add("warning", f"{image.source} has voxels of {_mm(image.spacing)}", image.source)
    count = image.shape[cut.axes[0]]
    if count == 1:
        finding.add("warning", f"{image.source} has a single slice", image.source)
    odd, low, high = 0, np.inf, -np.inf
    for k in range(image.shape[2]):
        plane = image.intensities(image.voxels[:, :, k])
        finite = np.isfinite(plane)
        odd += int(plane.size - finite.sum())
        if finite.any():
            low, high = min(low, float(plane[finite].min())), max(high, float(plane[finite].max()))
    if odd:
        finding.add("error", f"{image.source} contains {odd} voxels that are NaN or infinite", image.source)
    if low == high:
        finding.add("warning", f"{image.source} is empty: every voxel is {low:g}", image.source)


def _examine_label(finding: Finding, label: Volume, task: Task) -> None:
    finding.label = content_hash(label)
    finding.notes |= set(label.notes)
    ids = label_ids(label)
    counts = np.zeros(1 << 16, np.int64)
    for k in range(label.shape[2]):
        counts += np.bincount(ids[:, :, k].ravel(), minlength=1 << 16)
    finding.ids = frozenset(int(i) for i in np.flatnonzero(counts))
    known = {c.id for c in task.classes}
    for number in sorted(finding.ids - known):
        finding.add(
            "error",
            f"{label.source} contains label id {number} in {counts[number]} voxels; "
            f"the known ids are {', '.join(map(str, sorted(known)))}",
            label.source,
        )
    if not counts[1:].any():
        finding.add("warning", f"{label.source} is an empty label: every voxel is background", label.source)


def _repeated_names(cases: list[Case]) -> Iterator[Problem]:
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            file = next(str(f) for case in cases if case.name == name for f in (*case.files, name))
            yield Problem("error", name, file, f"{count} cases are named {name}, one of them from {file}")


def _missing_volumes(cases: list[Case], expected: int | None) -> Iterator[Problem]:
    by_patient = defaultdict(list)
    for case in cases:
        by_patient[case.patient].append(case)
    for patient, of_patient in by_patient.items():
        if expected and len(of_patient) < expected:
            file = str((*of_patient[0].files, patient)[0])
            message = f"{patient} has only {len(of_patient)} of {expected} frames: {file}"
            yield Problem("error", of_patient[0].name, file, message)


def _duplicates(findings: list[Finding]) -> Iterator[Problem]:
    """The same image under two names, like ACDC's patient074 and patient076: a leak if a split separates them."""
    same = defaultdict(list)
    for finding in findings:
        if finding.image:
            same[finding.image].append(finding)
    for first, *others in same.values():
        for other in others:
            labels = "the same label" if first.label == other.label else "different labels"
            if not (first.label and other.label):
                labels = "a label for at most one of them"
            message = (
                f"{other.case.name} is the same image as {first.case.name}, with {labels} "
                f"({other.file} and {first.file}); keep both in the same part of a split"
            )
            yield Problem("warning", other.case.name, other.file, message)


def _same_labels(findings: list[Finding]) -> Iterator[Problem]:
    """A label copied under another name, or a label stored in place of its scan."""
    same = defaultdict(list)
    for finding in findings:
        if finding.label and finding.label == finding.image:
            message = f"{finding.case.name}: image and label are the same ({finding.file}, {finding.case.files[-1]})"
            yield Problem("error", finding.case.name, finding.file, message)
        if finding.ids - {0}:
            same[finding.label].append(finding)
    for first, *others in same.values():
        for other in others:
            if other.image and first.image and other.image != first.image:
                files = " and ".join(sorted({str(f.case.files[-1]) for f in (first, other) if f.case.files}))
                message = (
                    f"{other.case.name} and {first.case.name} have the same label for two different images ({files})"
                )
                yield Problem("warning", other.case.name, other.file, message)


def _absent_classes(findings: list[Finding], task: Task, folder: Path) -> Iterator[Problem]:
    """A class that no label contains cannot be learned; often a wrong id in dataset.json or in the labels."""
    labelled = [finding.ids for finding in findings if finding.label]
    present = frozenset[int]().union(*labelled)
    for c in task.classes if present - {0} else ():  # empty labels have been reported one by one
        if c.id and c.id not in present:
            message = (
                f"{folder}: none of the {len(labelled)} labels contains {c.name} (id {c.id}), so it cannot be learned"
            )
            yield Problem("warning", "", str(folder), message)


def _other_planes(findings: list[Finding]) -> Iterator[Problem]:
    """Slices follow the thickest axis, so a scan in another plane shows the network a different view."""
    directions = Counter(finding.direction for finding in findings if finding.direction)
    usual = directions.most_common(1)[0][0] if directions else ""
    for finding in findings:
        if finding.direction not in ("", usual):
            message = (
                f"{finding.file} is sliced along {finding.direction} (voxels of {_mm(finding.spacing or ())}, slice "
                f"axis first), but {directions[usual]} others are sliced along {usual}"
            )
            yield Problem("warning", finding.case.name, finding.file, message)


def _direction(image: Volume, axis: int) -> str:
    along = np.abs(image.affine[:3, axis]) / image.spacing[axis]
    return WORLD_AXES[int(along.argmax())] if along.max() > STRAIGHT else ""


def _unusual_spacings(findings: list[Finding]) -> Iterator[Problem]:
    measured = [(f, f.spacing) for f in findings if f.spacing]
    if len(measured) < ENOUGH:
        return
    median = np.median([spacing for _, spacing in measured], axis=0)
    for finding, spacing in measured:
        ratio = np.array(spacing) / median
        if max(ratio.max(), 1 / ratio.min()) > UNUSUAL:
            message = f"{finding.file} has voxels of {_mm(spacing)}; the median is {_mm(median)} (slice, row, column)"
            yield Problem("warning", finding.case.name, finding.file, message)


def _notes(findings: list[Finding]) -> Iterator[Problem]:
    """Notes from the readers; one warning for all cases that have the same note."""
    by_note = defaultdict(list)
    for finding in findings:
        for note in finding.notes:
            by_note[note].append(finding)
    for note, concerned in sorted(by_note.items()):
        first = concerned[0]
        others = f" and {len(concerned) - 1} more" if len(concerned) > 1 else ""
        yield Problem("warning", first.case.name if not others else "", first.file, f"{first.file}{others}: {note}")


def _mm(spacing: Iterable[float]) -> str:
    return " x ".join(f"{s:.3g}" for s in spacing) + " mm"
