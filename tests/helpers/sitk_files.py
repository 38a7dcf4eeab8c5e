"""Files as SimpleITK writes them: a DICOM series slice by slice, and images of any pixel type and orientation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.uid import generate_uid


def image(voxels: NDArray[Any], affine: NDArray[np.float64]) -> Any:
    """voxels[i, j, k] on a RAS+ affine as a SimpleITK image."""
    import SimpleITK as sitk

    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    made = sitk.GetImageFromArray(np.ascontiguousarray(voxels.T))
    made.SetSpacing(spacing.tolist())
    made.SetDirection((lps[:3, :3] / spacing).ravel().tolist())
    made.SetOrigin(lps[:3, 3].tolist())
    return made


def content(made: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The voxels[i, j, k] and RAS+ affine of a SimpleITK image."""
    import SimpleITK as sitk

    affine = np.eye(4)
    affine[:3, :3] = np.array(made.GetDirection()).reshape(3, 3) * made.GetSpacing()
    affine[:3, 3] = made.GetOrigin()
    return sitk.GetArrayFromImage(made).T, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


def write_series(folder: Path, voxels: NDArray[Any], affine: NDArray[np.float64], modality: str = "MR") -> Path:
    """As SimpleITK's own example does it (DicomSeriesFromArray): each slice an image of its own.

    Of a slice it does not know how far its neighbours are, and writes SpacingBetweenSlices 1.
    """
    import SimpleITK as sitk

    folder.mkdir(parents=True)
    whole, uid = image(voxels, affine), generate_uid()[:50]
    direction = np.array(whole.GetDirection()).reshape(3, 3)
    tags = {
        "0008|0060": modality,
        "0020|000d": uid + ".1",
        "0020|000e": uid + ".2",
        "0020|0052": uid + ".3",
        "0020|0037": "\\".join(f"{v:.12g}" for v in direction[:, :2].T.ravel()),
    }
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for k in range(voxels.shape[2]):
        plane = whole[:, :, k]
        place = "\\".join(f"{v:.12g}" for v in whole.TransformIndexToPhysicalPoint((0, 0, k)))
        for tag, value in {**tags, "0020|0032": place, "0020|0013": str(k), "0008|0018": f"{uid}.4.{k + 1}"}.items():
            plane.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{voxels.shape[2] - k}.dcm"))
        writer.Execute(plane)
    return folder


def read_series(folder: Path) -> tuple[NDArray[Any], NDArray[np.float64]]:
    import SimpleITK as sitk

    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    return content(reader.Execute())
