"""The page of masks that are in files already: of `mona view`, `mona evaluate --page`, and cases segmented earlier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np

from mona_infer.errors import InputError
from mona_infer.evaluation.metrics import DEFINITIONS, TOLERANCE, Definition, score_case
from mona_infer.geometry.align import on_grid_of, on_one_grid
from mona_infer.io.dicom.frame_times import interval
from mona_infer.io.formats import stem
from mona_infer.io.label_maps import mask_ids
from mona_infer.io.read import read_frames, read_volume
from mona_infer.segmenting.cine import heartbeat
from mona_infer.segmenting.report import CaseReport, FrameReport
from mona_infer.segmenting.statistics import class_volumes
from mona_infer.task import BLUE, GREEN, RED, LabelClass
from mona_infer.viewing.case import CasePage
from mona_infer.viewing.grid import ShownGrid
from mona_infer.viewing.names import without_folders
from mona_infer.volume import Volume

# After the three of the cardiac task: distinct on grey, also for most colour-blind readers (Okabe and Ito)
COLOURS = (BLUE, GREEN, RED, (230, 159, 0), (86, 180, 233), (204, 121, 167), (240, 228, 66), (0, 158, 115))
Frames = Iterator[tuple[Volume | None, Volume, Volume | None]]


def page_of_files(
    scan: Path | None,
    mask: Path,
    out: Path,
    *,
    reference: Path | None = None,
    names: Mapping[int, str] | None = None,
    classes: Sequence[LabelClass] | None = None,
    frame: int | None = None,
    series: str | None = None,
    definition: Definition = DEFINITIONS["sound"],
    tolerance: float = TOLERANCE,
    name: str = "",
    back: str = "",
    keep_names: bool = False,
) -> CaseReport:
    """Write the page and return the numbers on it.

    `classes` are those of a model; without them, they are the ids in the masks, and `names` what a user calls them.
    """
    page, axis, report = None, None, CaseReport(name or stem(scan or mask), str(scan), str(mask))
    for volume, labels, wanted in _frames(scan, mask, reference, frame, series):
        if page is None:
            listed = list(classes or classes_of(labels, wanted, names or {}, mask, reference, frame))
            frames = 1 if frame is not None else labels.frames
            page = CasePage(report.case, listed, frames)
            axis = ShownGrid.of(labels)
            report.spacing = [round(s, 6) for s in labels.spacing]
            report.warnings = [*(volume.notes if volume else ()), *labels.notes]
            if volume is not None and (step := interval(volume.times)) is not None:
                report.frame_interval_ms = round(1e3 * step, 3)
        ids = mask_ids(labels)
        assert axis is not None
        volumes = class_volumes(labels.with_voxels(ids), axis.slices, axis.axes[axis.slice_axis], listed)
        scores = None
        if wanted is not None:
            ids_of = [c.id for c in listed]
            measured = score_case(
                ids, mask_ids(wanted), labels.steps, ids_of, definition=definition.name, tolerance=tolerance
            )
            scores = {c.name: measured[c.id] for c in listed}
        report.frames.append(FrameReport(volumes, scores))
        page.add(volume, labels, wanted)
    if page is None:
        raise InputError(f"{mask} has no frames")
    report.cine = heartbeat(report.frames) if len(report.frames) > 1 else None
    given = [path for path in (scan, mask, reference) if path is not None]
    if not keep_names:
        report.warnings = without_folders(report.warnings, given)
    rules = definition.explanation if reference is not None else ()
    page.write(out, report, rules=rules, back=back, files=[str(p) for p in given] if keep_names else ())
    return report


def _frames(scan: Path | None, mask: Path, reference: Path | None, frame: int | None, series: str | None) -> Frames:
    """Frame by frame, all on one grid: the scan's, or without one the reference's."""

    def read(path: Path | None, series: str | None = None) -> Iterator[Volume | None]:
        if path is None:
            return repeat(None)
        if frame is None:
            return iter(read_frames(path, series=series))
        # `mona segment --frame N` writes a mask of that frame alone
        only = next(iter(read_frames(path, series=series)))
        return iter([only if only.frames == 1 else read_volume(path, frame=frame, series=series)])

    volumes, wanted = read(scan, series), read(reference)
    for n, labels in enumerate(read(mask)):
        assert labels is not None
        volume, true = next(volumes, None), next(wanted, None)
        for path, other in ((scan, volume), (reference, true)):
            if path is not None and (other is None or (n == 0 and frame is None and other.frames != labels.frames)):
                count = other.frames if other is not None else n
                raise InputError(f"{mask} has {labels.frames} frame(s), {path} has {count}; choose one with --frame N")
        if volume is not None:
            labels = on_grid_of(labels, volume)
            true = on_grid_of(true, volume) if true is not None else None
        elif true is not None:
            labels, true = on_one_grid(labels, true)
        yield volume, labels, true


def classes_of(
    mask: Volume,
    reference: Volume | None,
    names: Mapping[int, str],
    path: Path,
    reference_path: Path | None,
    frame: int | None,
) -> list[LabelClass]:
    """Those named by the user or in a file, and every other id in any frame of mask or reference."""
    called = {**mask.names, **(reference.names if reference else {}), **names}
    found = set(names)
    for volume, file in ((mask, path), (reference, reference_path)):
        if volume is None or file is None:
            continue
        found |= set(np.unique(mask_ids(volume)).tolist())
        if volume.frames > 1 and frame is None:
            found |= {int(i) for each in read_frames(file) for i in np.unique(mask_ids(each))}
    ids = sorted(found - {0}) or [1]
    return coloured({label: called.get(label, f"label {label}") for label in ids})


def coloured(names: Mapping[int, str]) -> list[LabelClass]:
    """Classes by id, each in a colour."""
    return [LabelClass(label, name, COLOURS[n % len(COLOURS)]) for n, (label, name) in enumerate(names.items())]
