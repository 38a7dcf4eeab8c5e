"""Read one DICOM series, from a folder, a zip or a single file, as a `Volume`.

Headers first, pixels only after every check has passed. No tag and no zip member's name ever becomes a path.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import UID, RLELossless

from mona_infer.dicom_slice import TIMES, Slice, shown, slices_of
from mona_infer.dicom_source import File, files_at, one_sentence, opened
from mona_infer.dicom_stack import Stack, arrange
from mona_infer.errors import InputError, MissingPart
from mona_infer.memory import TooLarge
from mona_infer.parts import install_command, requirements
from mona_infer.volume import Volume

LABELS = ("Modality", "SeriesInstanceUID", "SeriesNumber", "SeriesDescription")
HEADER = [
    *LABELS,
    "SOPInstanceUID",
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation"),
    *("BitsAllocated", "PixelRepresentation", "RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness"),
    *("SpacingBetweenSlices", "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *(classic for classic, _ in TIMES),
]
PIXEL_DATA = 0x7FE00010
SUFFIXES = (".dcm", ".dicom", ".ima")  # such a file that is not DICOM after all is worth a word

# Warning filters, log levels and descriptor 2 belong to the process: two readers would restore each other's.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, eq=False)
class _Header:
    file: File
    tags: Dataset
    modality: str
    labels: tuple[str, str, str]  # SeriesInstanceUID, SeriesNumber, SeriesDescription
    frames: int
    pixel_tag: int
    pixel_start: int
    pixel_length: int  # as declared
    pixel_bytes: int  # as really left in the file


def read_dicom(
    path: Path,
    *,
    frame: int | None = None,
    series: str | None = None,
    budget: int,
    beside: int = 0,
    origin: bool = False,
) -> Volume:
    """The series at `path`: its largest, or the one whose UID, number or description is `series`.

    `frame` chooses among the time points of a cine.  Nothing over `budget` bytes is unpacked or allocated, of which
    each voxel needs `beside` for what the caller will hold beside the scan.  `origin` keeps the headers.
    """
    with closing(_frames(path, frame, False, series, budget, beside, origin)) as frames:
        return next(frames)


def read_dicom_frames(
    path: Path, *, series: str | None = None, budget: int, beside: int = 0, origin: bool = False
) -> Iterator[Volume]:
    """Every time point of a cine in turn, one of them in memory at a time; of a series that is none, itself."""
    return _frames(path, 0, True, series, budget, beside, origin)


def _frames(
    path: Path, frame: int | None, every: bool, series: str | None, budget: int, beside: int, origin: bool
) -> Generator[Volume, None, None]:
    with files_at(path, budget) as files:
        with _ONE_AT_A_TIME, _quiet():
            headers, passed_over = _headers(files, path, budget)
            chosen, choice = _choose(headers, series, path)
            slices: list[Slice] = []
            for at, header in enumerate(chosen):
                with one_sentence(header.file.name):
                    found = slices_of(header.tags, at, header.file.name)
                    _check_pixels(header, found[0])
                    slices += found
            stack = arrange(slices, frame, shown(path))
        for n in range(stack.frames if every else 1):
            with _ONE_AT_A_TIME, _quiet():  # not while the caller has the frame: other scans may have to be read
                stack = arrange(slices, n, shown(path)) if n else stack
                voxels, slope, intercept = _voxels(stack, chosen, path, budget, beside)
                volume = Volume(
                    voxels,
                    stack.affine,
                    slope=slope,
                    intercept=intercept,
                    source=str(path),
                    modality=chosen[0].modality or None,
                    notes=(*passed_over, *choice, *stack.notes),
                    frames=stack.frames,
                    origin=_origin(stack, chosen, budget) if origin else (),
                )
            yield volume
            del volume, voxels  # or this frame would be held while the next is read


@contextmanager
def _quiet() -> Iterator[None]:
    """pydicom and its codecs warn about every odd value; what matters is said in our errors and notes."""
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


@contextmanager
def _muted(codecs: bool) -> Iterator[None]:
    """GDCM complains with fprintf(stderr) from C: only the descriptor itself can be held shut."""
    try:
        kept = os.dup(2) if codecs else -1
    except OSError:  # a process without stderr has nothing to mute
        kept = -1
    if kept < 0:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _headers(files: Sequence[File], path: Path, budget: int) -> tuple[list[_Header], list[str]]:
    """The header of every image, and a note on files that only look like one by name."""
    headers, strange = [], []
    for file in files:
        with one_sentence(file.name), opened(file, budget) as stream:
            if stream is None:
                strange += [file.name] if file.name.lower().endswith(SUFFIXES) else []
                continue
            tags = dcmread(stream, stop_before_pixels=True, specific_tags=list(HEADER))
            if tags.get("Rows") is None:
                kind = UID(tags.file_meta.get("MediaStorageSOPClassUID", "")).name
                if kind.endswith("Image Storage"):  # passing over it could shorten the stack unseen
                    raise InputError(f"{file.name}: cut off in its header ({shown(kind)}); copy or export it again")
                continue
            frames = max(1, int(tags.get("NumberOfFrames") or 1))
            # Read here, where any damage is met: pydicom converts a value only when it is asked for.
            modality, *labels = (shown(tags.get(word)) for word in LABELS)
            pixels = _pixel_element(stream, *tags.original_encoding)
            headers.append(_Header(file, tags, modality, (labels[0], labels[1], labels[2]), frames, *pixels))
    if not headers:
        raise InputError(f"{shown(path)}: no DICOM image among its {len(files)} file(s); check the path")
    note = f"passed over {len(strange)} file(s) named like DICOM that are not, such as {(strange or [''])[0]}"
    return headers, [note] if strange else []


def _pixel_element(stream: BinaryIO, implicit: bool | None, little: bool | None) -> tuple[int, int, int, int]:
    """Tag, start, declared length and real bytes of the value that reading stopped before (PS3.5 7.1)."""
    order, start = "<" if little else ">", stream.tell() + (8 if implicit else 12)
    head, end = stream.read(12), stream.seek(0, SEEK_END)
    if len(head) < 12:
        return 0, 0, 0, 0
    group, element = struct.unpack(f"{order}HH", head[:4])
    (length,) = struct.unpack(f"{order}L", head[4:8] if implicit else head[8:])
    return group << 16 | element, start, length, end - start


def _choose(headers: Sequence[_Header], wanted: str | None, path: Path) -> tuple[list[_Header], list[str]]:
    groups: dict[str, list[_Header]] = defaultdict(list)
    for header in headers:
        groups[header.labels[0]].append(header)
    counts = {uid: sum(header.frames for header in group) for uid, group in groups.items()}
    ranked = sorted(groups, key=lambda uid: -counts[uid])

    def listed(uids: Sequence[str]) -> str:
        about = [(*groups[uid][0].labels[1:], counts[uid]) for uid in uids[:8]]
        text = ", ".join(f"{number or '(no number)'} {name!r} with {count}" for number, name, count in about)
        return text + (f" and {len(uids) - 8} more" if len(uids) > 8 else "")

    how = "choose with --series and a number, description or SeriesInstanceUID"
    if wanted is not None:
        matching = [uid for uid in ranked if any(wanted in header.labels for header in groups[uid])]
        if len(matching) == 1:
            return groups[matching[0]], []
        found = f"{len(matching)} series match" if matching else "no series matches"
        listing = listed(matching or ranked)
        raise InputError(f"{shown(path)}: {found} {wanted!r}; {how} (slices in each: {listing})")
    first, *others = ranked
    if not others:
        return groups[first], []
    if counts[first] == counts[others[0]]:
        raise InputError(f"{shown(path)}: holds several series, none with the most slices ({listed(ranked)}); {how}")
    return groups[first], [
        f"read series {listed([first])} slices, the most in {shown(path.name)}; also there: {listed(others)}; {how}"
    ]


def _syntax(header: _Header) -> UID:
    return UID(header.tags.file_meta.get("TransferSyntaxUID", ""))


def _check_pixels(header: _Header, image: Slice) -> None:
    """Refuse pixels that are not there or that nothing here can decode."""
    name = header.file.name
    if header.pixel_tag != PIXEL_DATA:
        raise InputError(f"{name}: holds no integer pixel data (7FE0,0010); copy or export it again")
    syntax = _syntax(header)
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise InputError(
            f"{name}: transfer syntax {shown(syntax.name) or '(none given)'} is not supported; export it uncompressed"
        ) from None
    if not decoder.is_available:
        jpeg2000, jpegls = "JPEG 2000" in syntax.name, "JPEG-LS" in syntax.name
        package = "pylibjpeg-openjpeg" if jpeg2000 else "pyjpegls" if jpegls else "python-gdcm"
        install = install_command(*requirements("dicom").values())
        raise MissingPart(f"{name}: pixels are compressed as {syntax.name}, which needs {package}: {install}")
    if decoder.is_encapsulated:
        return
    row = image.size[1] * image.dtype.itemsize
    expected = image.size[0] * row * header.frames
    # PS3.5 8.1.1 allows one byte of padding; writers add more, but a spare row means that a size is wrong.
    present = min(header.pixel_length, header.pixel_bytes)
    if not expected <= present or header.pixel_length >= expected + max(row, 2):
        raise InputError(
            f"{name}: {header.frames} frame(s) of {image.size[0]}x{image.size[1]} need {expected} bytes of pixels, "
            f"found {present}; copy or export it again"
        )


def _check_codestreams(stream: BinaryIO, header: _Header, images: Sequence[Slice]) -> None:
    """A codec makes room for the size its stream names, whatever the tags said: they must agree first."""
    if _syntax(header) == RLELossless:  # has no size of its own
        return
    for image in images:
        stream.seek(header.pixel_start)
        found = _codestream_size(get_frame(stream, image.frame, number_of_frames=header.frames))
        if found != (*image.size, 1):
            raise InputError(
                f"{image.name}: the compressed image says rows, columns, colours {found} where the tags say "
                f"{(*image.size, 1)}; export it again"
            )


def _codestream_size(code: bytes) -> tuple[int, int, int]:
    """Rows, columns and colours in the frame header of JPEG, JPEG-LS or JPEG 2000; zeros where there is none."""
    if not code.startswith(b"\xff\xd8"):
        at = code.index(b"\xff\x4f\xff\x51")  # SOC, SIZ: ISO/IEC 15444-1 A.5.1
        x1, y1, x0, y0, _, _, _, _, colours = struct.unpack_from(">8LH", code, at + 8)
        return y1 - y0, x1 - x0, colours
    at = 2
    while code[at] == 0xFF:  # segments up to SOFn: ISO/IEC 10918-1 B.2.2, and 14495-1 for JPEG-LS (F7)
        marker, length = struct.unpack_from(">BH", code, at + 1)
        if marker == 0xF7 or (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)):
            rows, columns, colours = struct.unpack_from(">HHB", code, at + 5)
            return rows, columns, colours
        at += 1 if marker == 0xFF else 2 + length  # FF may fill
    return 0, 0, 0


def _origin(stack: Stack, headers: Sequence[_Header], budget: int) -> tuple[tuple[Dataset, int], ...]:
    """The whole header (all but the pixels) and the frame number within its file, of each slice of the stack."""
    whole: dict[int, Dataset] = {}
    for image in stack.slices:
        if image.file not in whole:
            with one_sentence(image.name), opened(headers[image.file].file, budget) as stream:
                assert stream is not None
                whole[image.file] = dcmread(stream, stop_before_pixels=True)
    return tuple((whole[image.file], image.frame) for image in stack.slices)


def _voxels(
    stack: Stack, headers: Sequence[_Header], path: Path, budget: int, beside: int
) -> tuple[NDArray[Any], float, float]:
    """The array of the stack (i along a row, j down a column, k slice), filled one slice at a time."""
    first = stack.slices[0]
    rows, columns = first.size
    one_rescale = len({image.rescale for image in stack.slices}) == 1  # PET and some MR rescale slice by slice
    dtype = first.dtype if one_rescale else np.dtype(np.float32)
    shape = (columns, rows, len(stack.slices))
    need = columns * rows * len(stack.slices) * (dtype.itemsize + beside)
    if need > budget:
        what = f"{shown(path)} ({columns}x{rows}x{len(stack.slices)} voxels)"
        raise TooLarge(what, need, budget, "take a machine with more, or a smaller series")
    voxels = np.empty(shape, dtype, order="F")
    by_file: dict[int, list[tuple[int, Slice]]] = defaultdict(list)
    for k, image in enumerate(stack.slices):
        by_file[image.file].append((k, image))
    for at, wanted in by_file.items():
        file, compressed = headers[at].file, _syntax(headers[at]).is_encapsulated
        with one_sentence(file.name), opened(file, budget) as stream, _muted(compressed):
            if stream is None:
                raise InputError(f"{file.name}: changed while it was read; read it again")
            if compressed:
                _check_codestreams(stream, headers[at], [image for _, image in wanted])
            decoded = iter_pixels(stream, indices=[image.frame for _, image in wanted], raw=True)
            # Closed before the stream is, which the generator rewinds when it ends.
            with closing(cast(Generator[NDArray[Any], None, None], decoded)) as frames:
                for (k, image), pixels in zip(wanted, frames, strict=True):
                    slope, intercept = image.rescale
                    voxels[:, :, k] = pixels.T if one_rescale else pixels.T * slope + intercept
    return (voxels, *first.rescale) if one_rescale else (voxels, 1.0, 0.0)
