"""From a NIfTI header to world millimetres, with a note on everything that was assumed or corrected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.io.nifti_header import METRES, MICRONS, MILLIMETRES, Header

UNITS = {METRES: ("metres", 1e3), MICRONS: ("microns", 1e-3)}
ASSUMED = (
    "its axes are assumed to point left, anterior and superior, as in nibabel and SPM "
    "(ITK and 3D Slicer: left, posterior, superior); check left and right, front and back"
)


def world_affine(path: Path, header: Header) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Voxel to world in millimetres.

    If all columns of the sform have length 1 but pixdim says otherwise, the sform lacks the scale, as in ACDC's
    original files (nnUNet#2741): its directions are right, and pixdim has the millimetres.
    """
    notes: list[str] = []
    with np.errstate(all="ignore"):
        try:
            affine = header.affine()
        except ValueError as error:
            raise InputError(f"{path}: the orientation in the header is damaged ({error})") from error
        lengths = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
        signed = np.asarray(header["pixdim"][1:4], np.float64)
        pixdim = np.abs(signed)
    if header["sform_code"] == 0 and header["qform_code"] == 0:
        notes.append(f"the header has no orientation (qform and sform codes are 0): {ASSUMED}")
        if (signed < 0).any():
            notes.append("its spacing (pixdim) is negative; the sign is ignored, as in nibabel (ITK flips that axis)")
    sane = np.isfinite(pixdim).all() and pixdim.min() > 0
    if sane and np.allclose(lengths, 1, atol=1e-4) and not np.allclose(pixdim, 1, rtol=0.01):
        affine[:3, :3] *= pixdim
        notes.append("the header's affine has no scale: voxel sizes are taken from pixdim")
    unit = int(header["xyzt_units"]) & 7
    if unit in UNITS:
        name, millimetres = UNITS[unit]
        affine[:3] *= millimetres
        notes.append(f"the header gives lengths in {name}; they were converted to millimetres")
    elif unit not in (0, MILLIMETRES):  # 0: not stated, as in half of all files
        notes.append(f"the header gives lengths in an unknown unit (code {unit}); they are assumed to be millimetres")
    return affine, tuple(notes)


def analyze_affine(header: Header) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Analyze 7.5 has no orientation; SPM stores the voxel at the origin in it, which is read as in nibabel."""
    affine = header.affine()
    shape = np.asarray(header["dim"][1:4], np.float64)
    origin = np.zeros(3) if header.spm_origin is None else header.spm_origin.astype(np.float64)
    if origin.any() and (origin > -shape).all() and (origin < 2 * shape).all():
        affine[:3, 3] = affine[:3, :3] @ (1 - origin)
    return affine, (f"Analyze 7.5 has no orientation: {ASSUMED}",)
