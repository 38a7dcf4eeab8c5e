"""What a DICOM header says about an image: pixel format, position in the patient, and time (PS3.3 C.7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.datadict import tag_for_keyword
from pydicom.dataset import Dataset

from mona_infer.errors import InputError
from mona_infer.io.dicom.limits import Meter

Floats = NDArray[np.float64]


# The functional groups of PS3.3 C.7.6.16 and C.8 that position a frame. Listed one by one, because private groups
# reuse ImagePositionPatient with a different meaning (Philips: dcm2niix issue 144).
MACROS = (
    "PixelMeasuresSequence",
    "PlaneOrientationSequence",
    "PlanePositionSequence",
    "PixelValueTransformationSequence",
    "FrameContentSequence",
    "CardiacSynchronizationSequence",
)

# What distinguishes two images at the same position, best first: (classic tag, functional-group tag).
TIMES = (
    ("TemporalPositionIdentifier", "TemporalPositionIndex"),
    ("TriggerTime", "NominalCardiacTriggerDelayTime"),
    ("AcquisitionNumber", "FrameAcquisitionNumber"),
    ("AcquisitionTime", "FrameAcquisitionDateTime"),
    ("InstanceNumber", "InstanceNumber"),
)
# Milliseconds between frames, for images without times of their own (PS3.3 C.7.6.5, C.7.6.18.1 and C.8.3).
NUMBERS_OF_TIME = ("FrameTime", "TemporalResolution", "NominalInterval", "CardiacNumberOfImages")


@dataclass(frozen=True, eq=False)
class Slice:
    """One image plane, from a classic file or from a frame of an enhanced file."""

    file: int  # which of the caller's files holds the pixels
    frame: int  # and which frame in it
    name: str
    uid: str
    size: tuple[int, int]  # rows, columns
    dtype: np.dtype[Any]
    position: Floats  # 3: LPS centre of the first pixel, PS3.3 C.7.6.2.1.1
    orientation: Floats  # 6: unit vectors along a row and down a column
    spacing: Floats  # 2: between rows, between columns (PS3.3 10.7.1.3)
    thickness: float | None
    rescale: tuple[float, float]  # slope, intercept
    times: tuple[float | str | None, ...]  # as in TIMES
    interval: float | None = None  # nominal milliseconds to the next frame
    tile: tuple[int, int] | None = None  # first row and column of its tile in a mosaic


def printable(text: object) -> str:
    """Text from a file, on one line and without terminal codes or lone surrogates."""
    return "" if text is None else "".join(c if c.isprintable() else "?" for c in str(text)).strip()


def slices_of(ds: Dataset, file: int, name: str, meter: Meter) -> list[Slice]:
    """The image planes of one file."""
    size, dtype = _pixels_of(ds, name)
    frames = int(ds.get("NumberOfFrames") or 1)
    if "PerFrameFunctionalGroupsSequence" not in ds:
        if frames != 1:
            raise InputError(
                f"{name} has {frames} frames but no functional groups (PS3.3 C.7.6.16) with their positions; "
                "export it as enhanced CT or MR, or as one file per slice"
            )
        return [_slice(ds, [ds], file, 0, name, size, dtype)]
    items = meter.items(ds, "PerFrameFunctionalGroupsSequence", frames + 1)
    if len(items) != frames:
        described = f"{len(items)} frames are" if len(items) <= frames else "more are"
        raise InputError(f"{name}: NumberOfFrames is {frames} but {described} described; export the file again")
    shared = [macro for item in meter.items(ds, "SharedFunctionalGroupsSequence", 1) for macro in _macros(item, meter)]
    return [
        # PS3.3 C.7.6.16.1.1: a group is shared or per frame, never both; the frame's own group comes first.
        _slice(ds, _macros(item, meter) + shared, file, k, f"{name} frame {k + 1}", size, dtype)
        for k, item in enumerate(items)
    ]


def _macros(item: Dataset, meter: Meter) -> list[Dataset]:
    return [first for macro in MACROS for first in meter.items(item, macro, 1)]


def _pixels_of(ds: Dataset, name: str) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Rows, columns and stored type (PS3.3 C.7.6.3); anything but one grey value per pixel is refused."""
    photometric = printable(ds.get("PhotometricInterpretation"))
    if ds.get("SamplesPerPixel", 1) != 1 or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise InputError(
            f"{name}: the pixels are {photometric or 'of an unknown kind'}, not grey values; choose the original "
            "scan, not a colour rendering of it"
        )
    if printable(ds.get("Modality")) == "RTDOSE":  # its values have another scale, DoseGridScaling (PS3.3 C.8.8.3)
        raise InputError(f"{name} is a radiation dose (RTDOSE), not a scan; choose the scan that it was planned on")
    if "ModalityLUTSequence" in ds:  # PS3.3 C.11.1
        raise InputError(
            f"{name}: the intensities need a Modality LUT, which is not supported; export with a rescale slope"
        )
    rows, columns, bits, signed = (
        int(_required([ds], keyword, name)) for keyword in ("Rows", "Columns", "BitsAllocated", "PixelRepresentation")
    )
    if min(rows, columns) < 1 or bits not in (8, 16, 32) or signed not in (0, 1):
        raise InputError(
            f"{name}: {rows}x{columns} pixels of {bits} bits (PixelRepresentation {signed}) cannot be read; "
            "expected 8, 16 or 32 bits, signed or not"
        )
    return (rows, columns), np.dtype(f"{'ui'[signed]}{bits // 8}")


def _slice(
    ds: Dataset,
    groups: list[Dataset],
    file: int,
    frame: int,
    name: str,
    size: tuple[int, int],
    dtype: np.dtype[Any],
) -> Slice:
    orientation = _numbers(groups, "ImageOrientationPatient", 6, name)
    row, column = orientation.reshape(2, 3)
    if max(abs(row @ row - 1), abs(column @ column - 1), abs(row @ column)) > 2e-3:
        raise InputError(
            f"{name}: ImageOrientationPatient {orientation.tolist()} is not two perpendicular unit vectors "
            "(PS3.3 C.7.6.2.1.1); export the file again"
        )
    spacing = _numbers(groups, "PixelSpacing", 2, name)
    if spacing.min() <= 0:
        raise InputError(f"{name}: PixelSpacing {spacing.tolist()} is not positive; export the file again")
    slope = float(_value(groups, "RescaleSlope", 1.0))
    intercept = float(_value(groups, "RescaleIntercept", 0.0))
    # Beyond 1e20, a 32-bit value times the slope overflows float32. The comparison also refuses NaN.
    if not (0 < abs(slope) < 1e20 and abs(intercept) < 1e20):
        raise InputError(f"{name}: rescale slope {slope} and intercept {intercept} cannot be applied; export it again")
    thickness = (_optional(groups, keyword) for keyword in ("SliceThickness", "SpacingBetweenSlices"))
    return Slice(
        file=file,
        frame=frame,
        name=name,
        uid=str(ds.get("SOPInstanceUID") or name),
        size=size,
        dtype=dtype,
        position=_numbers(groups, "ImagePositionPatient", 3, name),
        orientation=orientation,
        spacing=spacing,
        thickness=next((t for t in thickness if isinstance(t, float) and t > 0), None),
        rescale=(slope, intercept),
        times=tuple(
            _optional(groups if groups[0] is ds else [*groups, ds], *keywords, text=at == 3)
            for at, keywords in enumerate(TIMES)
        ),
        interval=_interval(groups if groups[0] is ds else [*groups, ds]),
    )


def _interval(groups: Sequence[Dataset]) -> float | None:
    frame_time, resolution, beat, images = (_optional(groups, keyword) for keyword in NUMBERS_OF_TIME)
    for value in (frame_time, resolution):
        if isinstance(value, float) and value > 0:
            return value
    if isinstance(beat, float) and isinstance(images, float) and beat > 0 and images >= 1:
        return beat / images
    return None


def _value(groups: Sequence[Dataset], keyword: str, default: Any = None) -> Any:
    for group in groups:
        value = group.get(keyword)
        if value is not None and value != "":
            return value
    return default


def _required(groups: Sequence[Dataset], keyword: str, name: str) -> Any:
    value = _value(groups, keyword)
    if value is None:
        tag = tag_for_keyword(keyword) or 0
        raise InputError(
            f"{name} has no {keyword} ({tag >> 16:04X},{tag & 0xFFFF:04X}), which a volume needs; "
            "export the original series"
        )
    return value


def _numbers(groups: Sequence[Dataset], keyword: str, count: int, name: str) -> Floats:
    values = np.atleast_1d(np.array(_required(groups, keyword, name), dtype=np.float64))
    if values.shape != (count,) or not np.isfinite(values).all():
        raise InputError(f"{name}: {keyword} must be {count} numbers, found {values.tolist()}; export the file again")
    return values


def _optional(groups: Sequence[Dataset], *keywords: str, text: bool = False) -> float | str | None:
    """A value that may be missing or unreadable without harm."""
    try:
        value = next((v for v in (_value(groups, keyword) for keyword in keywords) if v is not None), None)
        if value is None or text:
            return None if value is None else str(value)
        return float(value) if np.isfinite(float(value)) else None
    except (ValueError, TypeError, OverflowError):
        return None
