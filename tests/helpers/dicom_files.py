"""Synthetic DICOM: a volume and its RAS+ affine, written as a classic series or one enhanced file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence as Items
from pydicom.uid import (
    EnhancedMRImageStorage,
    ExplicitVRLittleEndian,
    MRImageStorage,
    generate_uid,
)
from pydicom.valuerep import DS


def decimals(values: Any) -> list[Any]:
    """Numbers as DICOM decimal strings of at most 16 characters (PS3.5 6.2)."""
    return [DS(float(value), auto_format=True) for value in np.ravel(values)]


def planes(affine: NDArray[np.float64]) -> tuple[list[Any], list[Any], Callable[[float], list[Any]]]:
    """ImageOrientationPatient, PixelSpacing and ImagePositionPatient(k) of voxels[i, j, k] under `affine`."""
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    along_row, down_column = np.linalg.norm(lps[:3, 0]), np.linalg.norm(lps[:3, 1])
    orientation = decimals([lps[:3, 0] / along_row, lps[:3, 1] / down_column])
    return orientation, decimals([down_column, along_row]), lambda k: decimals(lps[:3, 3] + k * lps[:3, 2])


def image(plane: NDArray[Any], sop_class: str, syntax: str) -> Dataset:
    """What every image has in common; `plane` is frames x rows x columns or rows x columns."""
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = syntax
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = sop_class
    ds.file_meta.MediaStorageSOPInstanceUID = ds.SOPInstanceUID = generate_uid()
    ds.Modality = "MR"
    ds.Rows, ds.Columns = plane.shape[-2:]
    ds.SamplesPerPixel = 1
    ds.PhotometricInterpretation = "MONOCHROME2"
    ds.BitsAllocated = ds.BitsStored = 8 * plane.dtype.itemsize
    ds.HighBit = ds.BitsStored - 1
    ds.PixelRepresentation = int(plane.dtype.kind == "i")
    order = "<" if ds.file_meta.TransferSyntaxUID.is_little_endian else ">"
    data = plane.astype(plane.dtype.newbyteorder(order)).tobytes()
    ds.PixelData = data + b"\0" * (len(data) % 2)
    ds["PixelData"].VR = "OB" if plane.dtype.itemsize == 1 else "OW"
    return ds


def change(ds: Dataset, changes: dict[str, Any], k: int) -> None:
    """Set tags; a callable is asked for slice k's value, None deletes the tag."""
    for keyword, value in changes.items():
        value = value(k) if callable(value) else value
        if value is not None:
            setattr(ds, keyword, value)
        elif keyword in ds:
            delattr(ds, keyword)


def write_series(
    folder: Path,
    voxels: NDArray[Any],
    affine: NDArray[np.float64],
    *,
    syntax: str = ExplicitVRLittleEndian,
    compress: str | None = None,
    names: Sequence[str] | None = None,
    **changes: Any,
) -> list[Path]:
    """One classic file per slice k of voxels[i, j, k]; `changes` as in `change`."""
    folder.mkdir(parents=True, exist_ok=True)
    orientation, spacing, position = planes(affine)
    series, files = generate_uid(), []
    for k in range(voxels.shape[2]):
        ds = image(np.ascontiguousarray(voxels[:, :, k].T), MRImageStorage, syntax)
        ds.SeriesInstanceUID, ds.SeriesNumber, ds.SeriesDescription = series, 1, "synthetic"
        ds.InstanceNumber = k + 1
        ds.ImageOrientationPatient, ds.PixelSpacing, ds.ImagePositionPatient = orientation, spacing, position(k)
        change(ds, changes, k)
        if compress:
            ds.compress(compress, generate_instance_uid=False)
        files.append(folder / (names[k] if names else f"{k:04}.dcm"))
        ds.save_as(files[-1], enforce_file_format=True)
    return files


def write_enhanced(
    path: Path,
    voxels: NDArray[Any],
    affine: NDArray[np.float64],
    *,
    order: Sequence[tuple[int, int]] | None = None,
    rescale: Callable[[int], tuple[float, float]] | None = None,
    by_trigger: bool = False,
    undefined_lengths: bool = False,
    syntax: str = ExplicitVRLittleEndian,
    compress: str | None = None,
    **changes: Any,
) -> Path:
    """One enhanced MR file of voxels[i, j, k] or voxels[i, j, k, t]; `order` lists the (k, t) as they are stored."""
    timed = voxels.ndim == 4
    voxels = voxels if timed else voxels[..., None]
    n, times = voxels.shape[2:]
    order = order or [(k, t) for t in range(times) for k in range(n)]
    orientation, spacing, position = planes(affine)
    ds = image(np.stack([voxels[:, :, k, t].T for k, t in order]), EnhancedMRImageStorage, syntax)
    ds.SeriesInstanceUID, ds.SeriesNumber, ds.SeriesDescription = generate_uid(), 1, "enhanced"
    ds.InstanceNumber = 1
    ds.NumberOfFrames = len(order)

    def group(**tags: Any) -> Items:
        item = Dataset()
        for keyword, value in tags.items():
            setattr(item, keyword, value)
        return Items([item])

    ds.SharedFunctionalGroupsSequence = group(
        PixelMeasuresSequence=group(PixelSpacing=spacing, SliceThickness=2.5),
        PlaneOrientationSequence=group(ImageOrientationPatient=orientation),
    )
    frames = []
    for k, t in order:
        content = group(TemporalPositionIndex=t + 1) if timed else group(FrameAcquisitionNumber=1)
        parts = {"PlanePositionSequence": group(ImagePositionPatient=position(k)), "FrameContentSequence": content}
        if by_trigger:
            parts["FrameContentSequence"] = group(FrameAcquisitionNumber=1)
            parts["CardiacSynchronizationSequence"] = group(NominalCardiacTriggerDelayTime=40.0 * t)
        if rescale:
            slope, intercept = rescale(k)
            parts["PixelValueTransformationSequence"] = group(RescaleSlope=slope, RescaleIntercept=intercept)
        frames += group(**parts)
    ds.PerFrameFunctionalGroupsSequence = Items(frames)
    change(ds, changes, 0)
    for keyword in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        if keyword in ds:
            ds[keyword].is_undefined_length = undefined_lengths
    if compress:
        ds.compress(compress, generate_instance_uid=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    ds.save_as(path, enforce_file_format=True)
    return path


def write_label_map(path: Path, labels: NDArray[Any], affine: NDArray[np.float64], **changes: Any) -> Path:
    """The least that is read of a DICOM label map (PS3.3 A.86): segments 1, 2, ... without highdicom."""
    segments = []
    for number in range(1, max(1, int(labels.max())) + 1):
        segments.append(Dataset())
        segments[-1].SegmentNumber, segments[-1].SegmentLabel = number, f"class {number}"
    kind = "1.2.840.10008.5.1.4.1.1.66.7"
    tags = {"SOPClassUID": kind, "Modality": "SEG", "SegmentationType": "LABELMAP", "SegmentSequence": Items(segments)}
    write_enhanced(path, labels.astype(np.uint8), affine, **(tags | changes))
    ds = dcmread(path)
    ds.file_meta.MediaStorageSOPClassUID = kind
    ds.save_as(path)
    return path
