"""What is written and told of one case, frame by frame; the mask takes its name last of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mona_infer.io.dicom.frame_times import interval
from mona_infer.io.formats import SEG
from mona_infer.io.nifti import nifti_writer
from mona_infer.models.file import Model
from mona_infer.segmenter import Segmentation
from mona_infer.segmenting.cine import ejection
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import COLUMNS, findings, preview, scores
from mona_infer.segmenting.warnings import training_differences
from mona_infer.volume import Volume

if TYPE_CHECKING:
    from mona_infer.viewing.pictures import Picture


@dataclass(frozen=True)
class Wishes:
    """What to do with every case."""

    frame: int | None  # which one of a cine
    every_frame: bool
    series: str | None
    force: bool
    probabilities: Path | None
    details: bool  # confidence is wanted
    pictures: bool


Rows = list[list[tuple[str, "Picture"]]]


class Output:
    """Filled by `add`, frame after frame, then closed by `finish`, or given up by `abandon`: all from one thread."""

    def __init__(self, job: Job, wishes: Wishes, model: Model) -> None:
        self.job, self._wishes, self._model = job, wishes, model
        self._files = ExitStack()
        self._write_mask: Callable[[Volume], None] | None = None
        self._write_map: dict[str, Callable[[Volume], None]] = {}  # by class
        self._frames: list[dict[str, Any]] = []
        self._case: dict[str, Any] = {"case": job.name, "scan": str(job.scan), "mask": str(job.out)}
        self._pictures: Rows = []
        self._seg: Volume | None = None
        self._error: Exception | None = None

    def add(self, found: Segmentation, reference: Volume | None) -> None:
        """The next frame; a failure is kept for `finish` to tell."""
        if self._error is not None:
            return
        try:
            self._add(found, reference)
        except Exception as error:
            self._error = self._thrown_away(error)

    def _add(self, found: Segmentation, reference: Volume | None) -> None:
        frames = found.mask.frames if self._wishes.every_frame else 1
        if not self._frames:
            notes = found.mask.notes if frames == 1 else [n for n in found.mask.notes if not n.startswith("frame ")]
            self._case["spacing"] = [round(s, 6) for s in found.mask.spacing]
            self._case["warnings"] = [*notes, *training_differences(found.stack)]
            if frames > 1:
                times, step = found.mask.times, interval(found.mask.times)
                self._case["frame_times_ms"] = [round(1e3 * t, 3) for t in times] or None
                self._case["frame_interval_ms"] = None if step is None else round(1e3 * step, 3)
            if self.job.out.suffix == SEG:
                from mona_infer.io.dicom.segmentation.write import warnings_of

                self._case["warnings"] += warnings_of(found.mask)
            self._open(found, frames)
        entry: dict[str, Any] = {"classes": findings(found)}
        if reference is not None:
            entry["scores"] = scores(found, reference)
        if self._wishes.pictures:
            self._pictures += preview(found, self.job.name, len(self._frames) if frames > 1 else None)
        self._frames.append(entry)
        for name, chances in found.probabilities.items():
            self._write_map[name](chances)
        if self._write_mask is None:
            self._seg = found.mask
        else:
            self._write_mask(found.mask)

    def _open(self, found: Segmentation, frames: int) -> None:
        """The mask's file first: they are closed in reverse, and a mask that is there is a case that is done."""
        if self.job.out.suffix != SEG:
            if self.job.out.name.endswith(".nrrd"):
                from mona_infer.io.nrrd_write import nrrd_writer

                writer = nrrd_writer(self.job.out, found.mask, frames=frames, classes=found.stack.task.classes)
            else:
                writer = nifti_writer(self.job.out, found.mask, frames=frames, intent="label")
            self._write_mask = self._files.enter_context(writer)
        for name, chances in found.probabilities.items():
            assert self._wishes.probabilities is not None
            plain = re.sub(r"[^\w+-]", "_", name)  # a model may come from anyone: its names are not paths
            path = self._wishes.probabilities / self.job.name / f"{plain}.nii.gz"
            self._write_map[name] = self._files.enter_context(nifti_writer(path, chances, frames=frames))

    def abandon(self, error: Exception) -> None:
        """Give it up, leaving nothing; the first reason is the one that `finish` tells."""
        if self._error is None:
            self._thrown_away(RuntimeError("given up"))  # not `error`: a writer would take an OSError for its own
            self._error = error

    def _thrown_away(self, error: Exception) -> Exception:
        """Remove what was written; the error, in the words of the writer that met it."""
        try:
            self._files.__exit__(type(error), error, error.__traceback__)
        except Exception as told:
            return told
        return error

    def finish(self) -> tuple[dict[str, Any], Rows]:
        """Give the files their names; the case's part of the report, and its pictures."""
        if self._error is None:
            try:
                self._files.close()
                if self._seg is not None:
                    from mona_infer.io.dicom.segmentation.write import write_seg

                    write_seg(self.job.out, self._seg, self._model)
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        if len(self._frames) == 1:
            return self._case | self._frames[0], self._pictures
        strip = [tile for row in self._pictures for tile in row]
        rows = [strip[n : n + COLUMNS] for n in range(0, len(strip), COLUMNS)]
        self._case["frames"] = self._frames
        self._case["cine"] = ejection([frame["classes"] for frame in self._frames])
        return self._case, rows
