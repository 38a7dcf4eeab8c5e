"""What is written of one case, frame by frame; the mask gets its name last of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mona_infer.io.dicom.frame_times import interval
from mona_infer.io.formats import SEG
from mona_infer.io.nifti import nifti_writer
from mona_infer.models.file import Model
from mona_infer.segmenter import Segmentation
from mona_infer.segmenting.cine import heartbeat
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport, FrameReport
from mona_infer.segmenting.statistics import COLUMNS, class_reports, preview, scores
from mona_infer.segmenting.warnings import training_differences
from mona_infer.volume import Volume

if TYPE_CHECKING:
    from mona_infer.viewing.case import CasePage
    from mona_infer.viewing.pictures import Picture


@dataclass(frozen=True)
class Options:
    """What to do with every case."""

    frame: int | None  # which one of a cine
    every_frame: bool
    series: str | None
    force: bool
    probabilities: Path | None
    details: bool  # confidence is wanted
    pictures: bool
    keep_names: bool = False  # of the folders above scan and mask, on pages


Rows = list[list[tuple[str, "Picture"]]]


class Output:
    """Filled by `add`, frame after frame, then closed by `finish`, or given up by `abandon`: all from one thread."""

    def __init__(self, job: Job, options: Options, model: Model) -> None:
        self.job, self._options, self._model = job, options, model
        self._files = ExitStack()
        self._write_mask: Callable[[Volume], None] | None = None
        self._write_map: dict[str, Callable[[Volume], None]] = {}  # by class
        self._report = CaseReport(job.name, str(job.scan), str(job.out))
        self._pictures: Rows = []
        self._seg: Volume | None = None
        self._page: CasePage | None = None
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
        frames = found.mask.frames if self._options.every_frame else 1
        report = self._report
        if not report.frames:
            self._describe(found, frames)
            self._open(found, frames)
        shown = len(report.frames)
        report.warnings += [f"frame {shown}: {w}" if frames > 1 else w for w in found.warnings]
        if self._options.pictures:
            self._pictures += preview(found, self.job.name, shown if frames > 1 else None)
        if self.job.page is not None:
            self._show(found, reference, frames)
        measured = None if reference is None else scores(found, reference)
        report.frames.append(FrameReport(class_reports(found), measured))
        for name, chances in found.probabilities.items():
            self._write_map[name](chances)
        if self._write_mask is None:
            self._seg = found.mask
        else:
            self._write_mask(found.mask)

    def _describe(self, found: Segmentation, frames: int) -> None:
        """What the first frame tells of the whole case."""
        report, mask = self._report, found.mask
        report.spacing = [round(s, 6) for s in mask.spacing]
        notes = mask.notes if frames == 1 else [n for n in mask.notes if not n.startswith("frame ")]
        card = self._model.card
        report.warnings = [*notes, *training_differences(found.stack, card.scans if card else None)]
        if frames > 1:
            step = interval(mask.times)
            report.frame_times_ms = [round(1e3 * t, 3) for t in mask.times] or None
            report.frame_interval_ms = None if step is None else round(1e3 * step, 3)
        if self.job.out.suffix == SEG:
            from mona_infer.io.dicom.segmentation.write import warnings_of

            report.warnings += warnings_of(mask)

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
            assert self._options.probabilities is not None
            plain = re.sub(r"[^\w+-]", "_", name)  # a model may come from anyone: its names are not paths
            path = self._options.probabilities / self.job.name / f"{plain}.nii.gz"
            self._write_map[name] = self._files.enter_context(nifti_writer(path, chances, frames=frames))

    def _show(self, found: Segmentation, reference: Volume | None, frames: int) -> None:
        from mona_infer.viewing.case import CasePage

        stack = found.stack
        if self._page is None:
            intensity = stack.task.intensity
            window = (intensity.low, intensity.high) if intensity.rule == "window" else None
            axis = stack.slicing.axes[0]
            self._page = CasePage(self.job.name, stack.task.classes[1:], frames, axis, window)
        sure = found.slice_confidence or None
        self._page.add(stack.volume, found.mask, reference, sure, sure_reversed=stack.slicing.flips[0])

    def _warn_of_an_empty_mask(self) -> None:
        classes = [entry for frame in self._report.frames for entry in frame.classes.items()]
        if not any(found.voxels for _, found in classes):
            names = ", ".join(dict.fromkeys(name for name, _ in classes))
            self._report.warnings.append(
                f"the mask is empty: the model found none of {names}; is this the right kind of scan?"
            )

    def _write_page(self) -> None:
        """Before the mask gets its name: a case that is done has its page."""
        if self._page is None or self.job.page is None:
            return
        from dataclasses import replace

        from mona_infer.evaluation.metrics import DEFINITIONS
        from mona_infer.viewing.names import without_folders

        given = [path for path in (self.job.scan, self.job.out, self.job.reference) if path is not None]
        kept = self._options.keep_names
        shown = self._report if kept else replace(self._report, warnings=without_folders(self._report.warnings, given))
        rules = DEFINITIONS["sound"].explanation if self.job.reference is not None else ()
        made_by = f"{self._model.path.name}, {self._model.precision}"
        files = [str(path) for path in given] if kept else ()
        self._page.write(self.job.page, shown, rules=rules, made_by=made_by, back=self.job.back, files=files)

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

    def finish(self) -> tuple[CaseReport, Rows]:
        """Give the files their names; returns the case's report and its pictures."""
        if self._error is None:
            try:
                self._warn_of_an_empty_mask()
                if len(self._report.frames) > 1:
                    self._report.cine = heartbeat(self._report.frames)
                self._write_page()
                self._files.close()
                if self._seg is not None:
                    from mona_infer.io.dicom.segmentation.write import write_seg

                    write_seg(self.job.out, self._seg, self._model)
            except Exception as error:
                self._error = error
                if self._page is not None and self.job.page is not None:
                    self.job.page.unlink(missing_ok=True)  # a page says that there is a mask
        if self._error is not None:
            raise self._error
        if len(self._report.frames) == 1:
            return self._report, self._pictures
        strip = [tile for row in self._pictures for tile in row]
        return self._report, [strip[n : n + COLUMNS] for n in range(0, len(strip), COLUMNS)]
