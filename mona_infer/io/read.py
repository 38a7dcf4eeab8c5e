"""Reading any kind of scan, and turning stored voxels into label ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.formats import FORMAT_NAMES, META, NIFTI, NRRD, PAIR, check_is_file_or_folder
from mona_infer.io.scan_file import ScanFile
from mona_infer.system.memory_budget import memory_budget
from mona_infer.volume import Volume
from mona_kernels.native import Labels


def read_volume(
    path: Path | str,
    *,
    frame: int | None = None,
    series: str | None = None,
    budget: int = 0,
    beside: int = 0,
    origin: bool = False,
) -> Volume:
    """Read a scan or mask: NIfTI, Analyze, NRRD, MetaImage, or DICOM (a folder, a zip, a file or a DICOM-SEG mask).

    `frame` selects a frame of a 4-D file or a cine.  `series` selects a series of a DICOM folder by number, description
    or UID.  `budget` is how many bytes may be used (default: three quarters of the machine's memory), and `beside` how
    many of them the caller needs per voxel.  `origin` keeps the DICOM headers, which writing a DICOM-SEG needs.
    """
    path, budget = Path(path), budget or memory_budget()
    scan = _open(path)
    if scan is not None:
        return scan.volume(frame, budget=budget, beside=beside)
    from mona_infer.io.dicom.read import read_dicom
    from mona_infer.io.dicom.segmentation.read import find_seg, read_seg

    if (seg := find_seg(path)) is not None:
        return read_seg(seg, budget=budget, beside=beside)

    return read_dicom(path, frame=frame, series=series, budget=budget, beside=beside, origin=origin)


def read_frames(
    path: Path | str, *, series: str | None = None, budget: int = 0, beside: int = 0, origin: bool = False
) -> Iterator[Volume]:
    """Read the frames of a 4-D scan or a cine one at a time; any other scan has a single frame."""
    path, budget = Path(path), budget or memory_budget()
    scan = _open(path)
    if scan is not None:
        return scan.volumes(budget=budget, beside=beside)
    from mona_infer.io.dicom.read import read_dicom_frames
    from mona_infer.io.dicom.segmentation.read import find_seg, read_seg

    if (seg := find_seg(path)) is not None:
        return iter([read_seg(seg, budget=budget, beside=beside)])
    return read_dicom_frames(path, series=series, budget=budget, beside=beside, origin=origin)


def read_grid(path: Path) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """Shape (followed by the number of frames, if several) and affine of a non-DICOM file, from its header alone."""
    scan = _open(path)
    if scan is None:
        raise InputError(f"{path} is DICOM; expected {FORMAT_NAMES}")
    return scan.shape, scan.affine


def _open(path: Path) -> ScanFile | None:
    """Read the header; None for DICOM; anything else is refused."""
    check_is_file_or_folder(path)
    name = path.name.lower()
    if not path.is_dir():
        if name.endswith((*NIFTI, *PAIR)) and not (
            name.endswith(".img") and is_dicom(path)
        ):  # DICOM CDs use such names
            from mona_infer.io.nifti import open_nifti

            return open_nifti(path)
        if name.endswith(NRRD):
            from mona_infer.io.nrrd import open_nrrd

            return open_nrrd(path)
        if name.endswith(META):
            from mona_infer.io.metaimage import open_metaimage

            return open_metaimage(path)
    if path.is_dir() or name.endswith((".zip", ".dcm", ".ima")) or is_dicom(path):
        return None
    raise InputError(f"{path} is neither {FORMAT_NAMES} nor DICOM (a folder, a .zip or a .dcm file)")


def is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"  # PS3.10 7.1
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def label_ids(volume: Volume) -> Labels:
    """The voxels as uint8 or uint16 label ids, in file order; values that are not whole numbers are refused."""
    voxels = volume.voxels
    if voxels.dtype in (np.uint8, np.uint16) and volume.slope == 1 and volume.intercept == 0:
        return np.asarray(voxels)
    top = 0
    out: Labels = np.zeros(volume.shape, np.uint8, order="F")
    for k in range(volume.shape[2]):
        with np.errstate(invalid="ignore", over="ignore"):  # infinity or beyond: refused below
            plane = volume.intensities(voxels[:, :, k])
            ids = plane.astype(np.int32)
        if not np.array_equal(ids, plane) or ids.min() < 0 or ids.max() > 65535:
            odd = plane[(ids != plane) | (ids < 0) | (ids > 65535)][0]
            raise InputError(
                f"{volume.source} is not a label map: it holds {odd:g}; labels must be whole numbers from 0 to 65535"
            )
        top = max(top, int(ids.max()))
        if top > 255 and out.dtype == np.uint8:
            out = out.astype(np.uint16, order="F")
        out[:, :, k] = ids
    return out
