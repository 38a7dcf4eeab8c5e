"""`--page` of a folder: which page belongs to which case, and the page of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mona_infer.errors import MonaError

if TYPE_CHECKING:
    from mona_infer.evaluation.metrics import Definition
    from mona_infer.io.pairing import Case
    from mona_infer.models.file import Model
    from mona_infer.segmenting.jobs import Job
    from mona_infer.segmenting.outputs import Options
    from mona_infer.segmenting.report import CaseReport
    from mona_infer.task import LabelClass


def with_pages(jobs: list[Job], page: Path, *, folder: bool) -> list[Job]:
    """The same jobs, each with the page that will be written of it."""
    from mona_infer.viewing.cohort import back_to, case_page, check_index

    if not folder:
        return [replace(job, page=page) for job in jobs]
    check_index(page, [job.name for job in jobs])
    pages = [case_page(page, job.name) for job in jobs]
    return [replace(job, page=own, back=back_to(page, own)) for job, own in zip(jobs, pages, strict=True)]


def write_all_cases(
    page: Path,
    jobs: Sequence[Job],
    todo: Sequence[Job],
    cases: Sequence[CaseReport],
    model: Model,
    options: Options,
    scans: Path,
) -> None:
    """The page of a folder; a case that had its mask before, but no page, gets one from its files."""
    from mona_infer.viewing.cohort import Listed, listed, write_index
    from mona_infer.viewing.from_files import page_of_files
    from mona_infer.viewing.names import without_folders

    errors = {case.case: case.error for case in cases if case.error is not None}
    done = {job.name for job in todo}
    found = []
    for job in jobs:
        assert job.page is not None
        error = errors.get(job.name)
        if error is None and job.name not in done and not job.page.exists():
            if job.source or job.target:
                found.append(Listed(job.name, None, "had its mask before, in a store; --overwrite also makes its page"))
                continue
            try:
                page_of_files(
                    job.scan,
                    job.out,
                    job.page,
                    reference=job.reference,
                    classes=model.task.classes[1:],
                    frame=options.frame,
                    series=options.series,
                    name=job.name,
                    back=job.back,
                    keep_names=options.keep_names,
                )
            except MonaError as failure:
                error = str(failure)
        if error is not None and not options.keep_names:
            (error,) = without_folders(
                [error], [path for path in (job.scan, job.out, job.reference) if path is not None]
            )
        found.append(listed(job.name, job.page) if error is None else Listed(job.name, None, error))
    made_by = f"{model.path.name}, {model.precision}"
    write_index(page, found, model.task.classes[1:], title=scans.resolve().name, made_by=made_by)


def write_evaluation(
    page: Path,
    cases: Sequence[Case],
    classes: Sequence[LabelClass],
    definition: Definition,
    *,
    tolerance: float,
    scans: Path | None,
    frame: int | None,
    series: str | None,
    folder: bool,
    keep_names: bool,
) -> None:
    """Of one case its page, of several the page of all and one of each: masks and references, over scans if given."""
    from mona_infer.io.pairing import scan_of
    from mona_infer.system.progress import progress
    from mona_infer.viewing.cohort import back_to, case_page, check_index, listed, write_index
    from mona_infer.viewing.from_files import page_of_files

    names = [case.name for case in cases]
    if folder:
        check_index(page, names)
    own = [case_page(page, name) if folder else page for name in names]
    for case, path in progress(zip(cases, own, strict=True), len(cases), "drawing"):
        page_of_files(
            scan_of(case.name, scans) if scans is not None and folder else scans,
            case.prediction,
            path,
            reference=case.reference,
            classes=classes,
            definition=definition,
            tolerance=tolerance,
            frame=frame,
            series=series,
            name=case.name,
            back=back_to(page, path) if folder else "",
            keep_names=keep_names,
        )
    if folder:
        found = [listed(name, path) for name, path in zip(names, own, strict=True)]
        write_index(page, found, classes, title=cases[0].prediction.resolve().parent.name)
