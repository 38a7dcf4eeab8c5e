"""`mona segment` of a cohort: the cluster it runs on, and the table of its scans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mona_infer.errors import InputError

if TYPE_CHECKING:
    from mona_infer.cli.segment import Setup
    from mona_infer.cohort.run import Cohort
    from mona_infer.models.file import Model
    from mona_infer.segmenting.jobs import Job
    from mona_infer.segmenting.outputs import Options
    from mona_infer.segmenting.report import CaseReport


def cohort_on(
    cluster: str | None, slurm: list[str], *, folder: bool, preview: Path | None, threads: int, ram: int
) -> Cohort | None:
    """The cluster to use, if one is named; nothing is started yet."""
    if cluster is None:
        if slurm:
            raise InputError("--slurm sets what jobs of --cluster slurm ask for; add --cluster slurm:N")
        return None
    if not folder:
        raise InputError("--cluster spreads a cohort over workers; give a folder, a list or a pattern of scans")
    if preview is not None:
        raise InputError("--preview draws what this process has segmented; with --cluster, use --page")
    from mona_infer.cohort.run import Cohort

    return Cohort(cluster, slurm, threads=threads, max_ram=ram)


def on_cluster(
    cohort: Cohort, todo: list[Job], setup: Setup, options: Options, *, overwrite: bool
) -> Iterator[tuple[CaseReport, Any]]:
    from mona_infer.cohort.settings import Settings

    settings = Settings(setup.model, setup.engine, options, cohort.of_worker(setup.options), setup.threads, overwrite)
    with closing(cohort.run(todo, settings, setup.describe)) as reports:
        yield from ((report, []) for report in reports)


def with_records(jobs: list[Job], out: str, summary: Path, *, folder: bool) -> list[Job]:
    from mona_infer.cohort import kept
    from mona_infer.cohort.summary import check_summary

    if not folder:
        raise InputError("--summary is a table of many scans; of one scan, --stats writes the numbers")
    check_summary(summary)
    return kept.with_records(jobs, out)


def write_summary_of(path: Path, cases: list[CaseReport], kept: list[Job], model: Model) -> None:
    """All scans of the command: those it segmented, and those that had their mask before."""
    from concurrent.futures import ThreadPoolExecutor

    from mona_infer.cohort.kept import of_mask
    from mona_infer.cohort.summary import write_summary
    from mona_infer.system.progress import progress

    classes = model.task.classes[1:]
    with ThreadPoolExecutor() as pool:
        before = list(progress(pool.map(lambda job: of_mask(job, classes), kept), len(kept), "reading earlier reports"))
    write_summary(path, [*cases, *before], [c.name for c in classes])
