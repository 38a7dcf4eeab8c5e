"""Read one DICOM series, from a folder, a zip or a single file, as a `Volume`.

Headers first, pixels only after every check has passed. No tag and no zip member's name ever becomes a path.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pydicom import dcmread
from pydicom.dataset import Dataset

from mona_infer.errors import InputError
from mona_infer.io.dicom.codec_process import CodecProcess
from mona_infer.io.dicom.frame_times import time_header
from mona_infer.io.dicom.header import Header, read_headers
from mona_infer.io.dicom.mosaic import is_mosaic, tiles
from mona_infer.io.dicom.pixels import check_pixels, pixel_digest, read_voxels
from mona_infer.io.dicom.series_choice import choose
from mona_infer.io.dicom.slice import Slice, printable, slices_of
from mona_infer.io.dicom.slice_order import Stack, arrange
from mona_infer.io.dicom.source import as_input_error, files_at, opened
from mona_infer.volume import Volume

# Warning filters and log levels are global: two readers would restore each other's.
_ONE_AT_A_TIME = threading.Lock()


def read_dicom(
    path: Path,
    *,
    frame: int | None = None,
    series: str | None = None,
    budget: int,
    beside: int = 0,
    origin: bool = False,
) -> Volume:
    """The series at `path`: the largest, or the one whose UID, number or description is `series`.

    `frame` selects a time point of a cine.  At most `budget` bytes are unpacked or allocated, including `beside` bytes
    per voxel that the caller will need.  `origin` keeps the headers.
    """
    with closing(_frames(path, frame, False, series, budget, beside, origin)) as frames:
        return next(frames)


def read_dicom_frames(
    path: Path, *, series: str | None = None, budget: int, beside: int = 0, origin: bool = False
) -> Iterator[Volume]:
    """Every time point of a cine, with one in memory at a time; any other series has a single frame."""
    return _frames(path, 0, True, series, budget, beside, origin)


def _frames(
    path: Path, frame: int | None, every: bool, series: str | None, budget: int, beside: int, origin: bool
) -> Generator[Volume, None, None]:
    with files_at(path, budget) as files, CodecProcess() as codecs:
        with _ONE_AT_A_TIME, _quiet():
            headers, damaged, passed_over = read_headers(files, path, budget)
            chosen, choice = choose(headers, damaged, series, path)
            chosen, copies = without_copies(chosen, budget)
            slices, padded = slices_in(chosen, budget)
            stack = arrange(slices, frame, printable(path))
        for n in range(stack.frames if every else 1):
            with (
                _ONE_AT_A_TIME,
                _quiet(),
            ):  # not held while the caller uses the frame: other scans may be read meanwhile
                stack = arrange(slices, n, printable(path)) if n else stack
                voxels, slope, intercept = read_voxels(stack, chosen, path, budget, beside, codecs)
                volume = Volume(
                    voxels,
                    stack.affine,
                    slope=slope,
                    intercept=intercept,
                    source=str(path),
                    modality=chosen[0].modality or None,
                    header=time_header(voxels.shape, stack.affine, stack.times) if every else None,
                    notes=(*passed_over, *choice, *copies, *padded, *stack.notes),
                    frames=stack.frames,
                    origin=_origin(stack, chosen, budget) if origin else (),
                    times=stack.times,
                )
            yield volume
            del volume, voxels  # or it would stay in memory while the next is read


def without_copies(headers: Sequence[Header], budget: int) -> tuple[list[Header], list[str]]:
    """Each image once: files with the same SOPInstanceUID must be identical, including every pixel."""
    kept: dict[str, Header] = {}
    copies = []
    for header in headers:
        twin = kept.setdefault(str(header.tags.get("SOPInstanceUID") or header.file.name), header)
        if twin is header:
            continue
        with as_input_error(header.file.name):
            same = twin.tags == header.tags and pixel_digest(twin, budget) == pixel_digest(header, budget)
        if not same:
            raise InputError(
                f"{twin.file.name} and {header.file.name} are different versions of the same image "
                "(SOPInstanceUID); remove one of them"
            )
        copies.append(header.file.name)
    note = f"skipped {len(copies)} file(s) that are exact copies, such as {(copies or [''])[0]}"
    return list(kept.values()), [note] if copies else []


def slices_in(headers: Sequence[Header], budget: int) -> tuple[list[Slice], list[str]]:
    """The slices of a series, checked using only their headers, and a note on padding."""
    slices: list[Slice] = []
    padded = []
    for at, header in enumerate(headers):
        with as_input_error(header.file.name):
            images = slices_of(header.tags, at, header.file.name, header.meter)
            padding = check_pixels(header, images[0], budget)
            padded += [f"{padding} bytes in {header.file.name}"] if padding else []
            slices += tiles(header, images, budget) if is_mosaic(header.tags) else images
    note = f"{len(padded)} file(s) have zeros after the pixels, which were ignored ({(padded or [''])[0]})"
    return slices, [note] if padded else []


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence pydicom and its codecs, which warn about every odd value; our errors and notes say what matters."""
    loggers = [logging.getLogger(name) for name in ("pydicom", "pylibjpeg", "openjpeg")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL + 1)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _origin(stack: Stack, headers: Sequence[Header], budget: int) -> tuple[tuple[Dataset, int], ...]:
    """For each slice of the stack, the whole header (without pixels) and the frame number within its file."""
    if any(image.tile for image in stack.slices):
        raise InputError(
            f"{stack.slices[0].name}: a DICOM-SEG cannot refer to a slice of a Siemens mosaic; "
            "give --out a .nii.gz name"
        )
    whole: dict[int, Dataset] = {}
    for image in stack.slices:
        if image.file not in whole:
            with as_input_error(image.name), opened(headers[image.file].file, budget) as stream:
                assert stream is not None
                whole[image.file] = dcmread(stream, stop_before_pixels=True)
    return tuple((whole[image.file], image.frame) for image in stack.slices)
