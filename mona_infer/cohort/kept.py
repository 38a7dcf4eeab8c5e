"""What is known of a scan that has its mask already: what was recorded when it was made, else the mask's volumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mona_infer.errors import MonaError
from mona_infer.io.read import read_frames
from mona_infer.io.remote import fetch, is_remote
from mona_infer.segmenting.cine import heartbeat
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.report import CaseReport, ClassReport, FrameReport
from mona_infer.segmenting.statistics import class_volumes
from mona_infer.task import LabelClass

RECORDS = ".reports"  # in the folder of masks
MEASURED = "its mask was there already and was only measured: what was doubtful when it was made is not known"


def with_records(jobs: list[Job], out: str) -> list[Job]:
    """The same jobs, each with the file that keeps its report; it is written just before the mask gets its name.

    A store gets masks and nothing else.
    """
    return jobs if is_remote(out) else [replace(job, record=Path(out) / RECORDS / f"{job.name}.json") for job in jobs]


def of_mask(job: Job, classes: Sequence[LabelClass]) -> CaseReport:
    """The report of a scan with a mask."""
    if job.target:
        return _in_store(job, classes)
    scan = job.source or str(job.scan)
    if job.record is not None and job.record.is_file():
        try:
            report = CaseReport.from_json(json.loads(job.record.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # changed by hand, or by another version
            pass
        else:
            report.scan, report.mask = scan, str(job.out)
            report.cine = heartbeat(report.frames) if len(report.frames) > 1 else None
            return report
    report = CaseReport(job.name, scan, str(job.out), warnings=[MEASURED])
    try:
        for mask in read_frames(job.out):
            volumes = class_volumes(mask, lambda voxels: voxels, 0, classes)
            report.frames.append(FrameReport({name: _only_volume(entry) for name, entry in volumes.items()}))
            report.spacing = [round(s, 6) for s in mask.spacing]
    except (MonaError, OSError, ValueError) as error:  # ValueError: voxels that are no labels
        return CaseReport(job.name, scan, error=f"its mask cannot be read ({error}); remove it and repeat")
    report.cine = heartbeat(report.frames) if len(report.frames) > 1 else None
    return report


def _in_store(job: Job, classes: Sequence[LabelClass]) -> CaseReport:
    with TemporaryDirectory(prefix="mona-") as folder:
        try:
            here = fetch(job.target, Path(folder))
        except MonaError as error:
            return CaseReport(job.name, job.source or str(job.scan), error=str(error))
        report = of_mask(replace(job, out=here, target=""), classes)
    report.mask = None if report.error else job.target
    return report


def _only_volume(entry: ClassReport) -> ClassReport:
    """Without areas: which axis the slices lie along is known to the network's path alone."""
    return replace(entry, areas_mm2=[])
