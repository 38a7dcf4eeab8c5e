"""The headers of all images among some DICOM files; damaged files are set aside until their series is known."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path
from typing import BinaryIO, cast

from pydicom.datadict import tag_for_keyword
from pydicom.dataset import Dataset
from pydicom.filereader import read_partial
from pydicom.uid import UID

from mona_infer.errors import InputError
from mona_infer.io.dicom.limits import Meter, Metered
from mona_infer.io.dicom.slice import NUMBERS_OF_TIME, TIMES, printable
from mona_infer.io.dicom.source import File, as_input_error, opened

LABELS = ("Modality", "SeriesInstanceUID", "SeriesNumber", "SeriesDescription")
MOSAIC_COUNT = 0x0019100A  # NumberOfImagesInMosaic, where 0019,0010 is SIEMENS MR HEADER
OFFSETS = (0x7FE00001, 0x7FE00002)  # where compressed frames start and how long they are: as long as it takes
KEYWORDS = (
    *LABELS,
    *("SOPInstanceUID", "ImageType"),
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation"),
    *("BitsAllocated", "BitsStored", "PixelRepresentation", "RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness"),
    *("SpacingBetweenSlices", "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *(classic for classic, _ in TIMES),
    *NUMBERS_OF_TIME,
)
TAGS = [*(cast(int, tag_for_keyword(keyword)) for keyword in KEYWORDS), 0x00190010, MOSAIC_COUNT, *OFFSETS]
SHORT = frozenset(
    [0x00080005, *(tag for tag, keyword in zip(TAGS, KEYWORDS, strict=False) if not keyword.endswith("Sequence"))]
)
SERIES_UID, BEFORE_IT = 0x0020000E, 20_000  # and how many steps may come before it
SUFFIXES = (".dcm", ".dicom", ".ima")  # a file with such a name that is not DICOM gets a note


@dataclass(frozen=True, eq=False)
class Header:
    file: File
    tags: Dataset
    meter: Meter  # keeps counting when sequences are parsed later
    modality: str
    labels: tuple[str, str, str]  # SeriesInstanceUID, SeriesNumber, SeriesDescription
    frames: int
    pixel_tag: int
    pixel_start: int
    pixel_length: int  # declared
    pixel_bytes: int  # actually in the file


@dataclass(frozen=True, eq=False)
class Damaged:
    """A file that should hold an image but cannot be read."""

    file: File
    series: str | None  # its SeriesInstanceUID, if still readable
    error: InputError


def read_headers(files: Sequence[File], path: Path, budget: int) -> tuple[list[Header], list[Damaged], list[str]]:
    """The headers, the damaged files, and a note on files that are DICOM in name only."""
    headers, damaged, strange = list[Header](), list[Damaged](), list[str]()
    for file in files:
        wrong = ""
        try:
            with as_input_error(file.name), opened(file, budget) as stream:
                if stream is None:
                    strange += [file.name] if file.name.lower().endswith(SUFFIXES) else []
                    continue
                header = _header(file, stream)
                headers += [header] if header else []
        except InputError as error:
            wrong = str(error)  # keeping the error itself would keep its stream, perhaps a whole unpacked file
        if wrong:
            damaged.append(Damaged(file, _series_of(file, budget), InputError(wrong)))
    if not headers:
        if damaged:
            raise damaged[0].error
        raise InputError(f"{printable(path)}: none of its {len(files)} file(s) is a DICOM image; check the path")
    note = f"skipped {len(strange)} file(s) named like DICOM that are not DICOM, such as {(strange or [''])[0]}"
    return headers, damaged, [note] if strange else []


def _header(file: File, stream: BinaryIO) -> Header | None:
    size = stream.seek(0, SEEK_END)
    stream.seek(0)
    meter = Meter(file.name, size)
    metered = Metered(stream, meter, SHORT)
    with meter.counting():
        tags = read_partial(cast(BinaryIO, metered), metered.stop, specific_tags=list(TAGS))
    if tags.get("Rows") is None:
        kind = UID(tags.file_meta.get("MediaStorageSOPClassUID", "")).name
        if kind.endswith("Image Storage"):  # skipping it could silently shorten the stack
            raise InputError(f"{file.name}: the header is truncated ({printable(kind)}); copy or export it again")
        if not kind and not any(tags.get(keyword) for keyword in ("SOPInstanceUID", "Modality")):
            raise InputError(f"{file.name} starts like DICOM but its header is empty; copy or export it again")
        return None
    frames = max(1, int(tags.get("NumberOfFrames") or 1))
    # Read them now to detect damage: pydicom converts a value only when it is accessed.
    modality, *labels = (printable(tags.get(keyword)) for keyword in LABELS)
    pixels = _pixel_element(stream, size, *tags.original_encoding)
    return Header(file, tags, meter, modality, (labels[0], labels[1], labels[2]), frames, *pixels)


def _series_of(file: File, budget: int) -> str | None:
    """The series of a damaged file, if its UID comes before the damage; nothing after it is read."""
    try:
        with opened(file, budget) as stream:
            if stream is None:
                return None
            metered = Metered(stream, Meter(file.name, steps=BEFORE_IT), SHORT)
            tags = read_partial(
                cast(BinaryIO, metered),
                lambda tag, vr, length: metered.stop(tag, vr, length) or tag > SERIES_UID,
                specific_tags=[SERIES_UID],
            )
            return printable(tags.get("SeriesInstanceUID")) or None
    except Exception:  # the damage has already been reported
        return None


def _pixel_element(
    stream: BinaryIO, size: int, implicit: bool | None, little: bool | None
) -> tuple[int, int, int, int]:
    """Tag, start, declared length and actual bytes of the value at which reading stopped (PS3.5 7.1)."""
    order, start = "<" if little else ">", stream.tell() + (8 if implicit else 12)
    head = stream.read(12)
    if len(head) < 12:
        return 0, 0, 0, 0
    group, element = struct.unpack(f"{order}HH", head[:4])
    (length,) = struct.unpack(f"{order}L", head[4:8] if implicit else head[8:])
    return group << 16 | element, start, length, size - start
