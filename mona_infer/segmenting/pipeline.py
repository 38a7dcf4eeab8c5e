"""Cases through the network: the next scan is read, the last mask written meanwhile; a bad case never stops the rest.

A reader's thread, this one, and a writer's; each holds one scan (or frame of a cine) at a time.  Engines, kernels and
gzip release the interpreter's lock.  What comes out does not depend on who waited for whom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from mona_infer.errors import InputError, MonaError
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.formats import SEG
from mona_infer.io.label_maps import mask_ids
from mona_infer.io.read import read_frames, read_volume
from mona_infer.models.file import Model
from mona_infer.segmenter import PLANNED, Segmenter
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.outputs import Options, Output, Rows
from mona_infer.segmenting.report import CaseReport
from mona_infer.segmenting.scan_kind import check_scan
from mona_infer.system.memory_budget import TooLarge, sizes_in_words
from mona_infer.system.progress import waiting
from mona_infer.volume import Volume

Case = tuple[CaseReport, Rows]
Budget = Callable[[], tuple[int, int]]  # as Segmenter.reading_budget
Progress = Callable[[Job, float], None]  # how much of a case is done, 0..1
T = TypeVar("T")


@dataclass(eq=False)
class _Frame:
    """A scan, or a frame of a cine, and its reference; or the error met instead."""

    job: Job
    volume: Volume | None = None
    reference: Volume | None = None
    error: Exception | None = None

    def take(self) -> tuple[Volume, Volume | None]:
        """What it holds, and lets go of: iterators keep their last item while the next is read."""
        if self.volume is None:
            raise self.error or ValueError("neither a frame nor an error")
        taken = self.volume, self.reference
        self.volume = self.reference = None
        return taken


def run(
    jobs: list[Job],
    model: Model,
    options: Options,
    start: Callable[[], Segmenter],
    *,
    folder: bool,
    max_ram: int = 0,
    progress: Progress | None = None,
) -> Iterator[Case]:
    """Each case's report and pictures, in order.  `start` makes the engine ready while the first scan is read.

    `progress` is told of each case instead of the terminal; what it raises ends that case and no other.
    """
    maps, given_up = options.probabilities is not None, set[Job]()

    def budget() -> tuple[int, int]:
        return engine.result().reading_budget(maps) if max_ram else (0, 0)

    frames = _frames(jobs, model, options, budget, given_up)
    finished: deque[tuple[Job, Future[Case]]] = deque()
    output = written = None
    with (
        closing(frames),
        _told(progress) as tell,
        ThreadPoolExecutor(1) as writer,
        ThreadPoolExecutor(1) as reader,
    ):
        engine = writer.submit(start)
        try:
            for n, (job, its) in enumerate(groupby(_ahead(frames, reader, 0 if max_ram else 1), lambda f: f.job)):
                segmenter = engine.result()  # if there is none, no case has a chance
                output = Output(job, options, model)
                for shown, frame in enumerate(its):
                    if job in given_up:
                        continue
                    try:
                        volume, reference = frame.take()
                        of = volume.frames if options.every_frame else 1
                        bar = (
                            partial(_part, progress, job, shown, of)
                            if progress
                            else _bar(tell, shown, of, n, len(jobs), folder)
                        )
                        found = segmenter.segment(volume, confidence=options.details, probabilities=maps, progress=bar)
                    except Exception as error:
                        given_up.add(job)
                        writer.submit(output.abandon, error)
                    else:
                        if written is not None:
                            written.result()  # one frame waits to be written, never more
                        written = writer.submit(output.add, found, reference)
                        del volume, reference, found
                        if max_ram:
                            written.result()  # and is gone before the next is read
                finished.append((job, writer.submit(output.finish)))
                while finished and (finished[0][1].done() or len(finished) > 1):
                    yield _outcome(*finished.popleft(), folder, max_ram)
            while finished:
                yield _outcome(*finished.popleft(), folder, max_ram)
        finally:
            if output is not None:  # nothing to do but after an interrupt
                writer.submit(output.abandon, InterruptedError("interrupted"))


def _ahead(items: Iterator[T], reader: ThreadPoolExecutor, count: int) -> Iterator[T]:
    """Items made in the reader's thread, `count` of them before they are asked for."""
    coming = deque(reader.submit(next, items, None) for _ in range(count))
    while True:
        coming.append(reader.submit(next, items, None))
        item = coming.popleft().result()
        if item is None:
            return
        yield item
        del item


def _told(progress: Progress | None) -> AbstractContextManager[Callable[[float, int], None]]:
    return waiting("segmenting") if progress is None else nullcontext(lambda done, of: None)


def _part(progress: Progress, job: Job, frame: int, frames: int, done: int, of: int) -> None:
    """Tells of a case as a fraction of its slices in all frames."""
    progress(job, (frame + done / of) / frames)


def _bar(
    tell: Callable[[float, int], None], frame: int, frames: int, case: int, cases: int, folder: bool
) -> Callable[[int, int], None]:
    """Tells of slices: of one scan as such, of a folder as parts of its cases."""

    def progress(done: int, of: int) -> None:
        if folder:
            tell(case + (frame + done / of) / frames, cases)
        else:
            tell(frame * of + done, frames * of)

    return progress


def _frames(
    jobs: list[Job], model: Model, options: Options, budget: Budget, given_up: set[Job]
) -> Generator[_Frame, None, None]:
    """Every job's frames; reading goes on after a job that cannot be read."""
    for job in jobs:
        try:
            for volume, reference in _scan(job, model, options, budget):
                yield _Frame(job, volume, reference)
                del volume, reference
                if job in given_up:
                    break
        except Exception as error:
            yield _Frame(job, error=error)


def _scan(job: Job, model: Model, options: Options, budget: Budget) -> Iterator[tuple[Volume, Volume | None]]:
    """The scan and, on its grid, the reference: both are known to be good before the network starts."""
    allowed, beside = budget()
    limits: dict[str, Any] = {"series": options.series, "budget": allowed, "beside": beside}

    def read(path: Path, **limits: Any) -> Iterator[Volume]:
        if options.every_frame:
            return read_frames(path, **limits)
        return iter([read_volume(path, frame=options.frame, **limits)])

    references = iter(()) if job.reference is None else read(job.reference)
    for volume in read(job.scan, origin=job.out.suffix == SEG, **limits):
        _check(volume, job, model, options)
        reference = next(references, None)
        if reference is not None:
            if options.every_frame and reference.frames != volume.frames:
                raise InputError(
                    f"{job.reference} has {reference.frames} frame(s), {job.scan} has {volume.frames}; choose one of "
                    "the scan's with --frame N"
                )
            reference = on_grid_of(reference, volume)
            mask_ids(reference)
        yield volume, reference
        del volume, reference  # or they would be held while the next are read


def _check(volume: Volume, job: Job, model: Model, options: Options) -> None:
    if volume.sparse:
        raise InputError(f"{job.scan} is a DICOM Segmentation, not a scan; give the scan it was made from")
    check_scan(volume, model, force=options.force)
    if job.out.suffix == SEG:
        from mona_infer.io.dicom.segmentation.write import check_origin

        check_origin(volume)
        if options.every_frame and volume.frames > 1:
            raise InputError(f"{job.out}: a DICOM-SEG holds one frame; choose it with --frame N, or write a .nii.gz")


def _outcome(job: Job, pending: Future[Case], folder: bool, max_ram: int) -> Case:
    """What became of a case.  Of a folder every failure is a line of the report; a single scan's is the command's."""
    try:
        return pending.result()
    except TooLarge as error:
        whole = int((error.needed - error.budget) / PLANNED) + max_ram if max_ram else error.needed
        wanted, there = sizes_in_words(whole, max_ram or error.budget)
        limit = f"--max-ram allows {there}" if max_ram else f"{there} can be used"
        sentence = f"{error.what} needs {wanted} of memory in all, but {limit}; {error.remedy}"
        failure: Exception = InputError(sentence)
    except Exception as error:
        failure = error
    if not folder:
        raise failure
    known = isinstance(failure, MonaError | OSError | MemoryError)
    reason = str(failure) if known and str(failure) else f"{type(failure).__name__}: {failure}"
    return CaseReport(job.name, str(job.scan), error=" ".join(reason.split())), []
