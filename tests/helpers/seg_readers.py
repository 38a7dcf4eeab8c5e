"""DICOM-SEG as strangers read it: highdicom, pydicom-seg and dcmqi, each as label numbers [i, j, k] and a RAS+ affine.

pydicom-seg 0.4.1 asks for numpy < 2 and imports a module that pydicom 3 renamed.  Its reader runs with both once the
old name leads to the new module, so `make test-all` installs it without its dependencies (see the Makefile).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pydicom
import pydicom.uid
import pytest
from numpy.typing import NDArray

Read = tuple[NDArray[Any], NDArray[np.float64]]
FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])  # DICOM's LPS to NIfTI's RAS


def by_highdicom(path: Path) -> Read:
    highdicom = pytest.importorskip("highdicom")
    volume = highdicom.seg.segread(path).get_volume(combine_segments=True).flip_spatial(0)  # it starts at the far end
    affine = FLIP @ volume.affine[:, [2, 1, 0, 3]]  # its axes are slices, rows, columns
    return volume.array.transpose(2, 1, 0), affine


def by_pydicom_seg(path: Path) -> Read:
    sys.modules.setdefault("pydicom._storage_sopclass_uids", pydicom.uid)
    pydicom_seg = pytest.importorskip("pydicom_seg")
    result = pydicom_seg.MultiClassReader().read(pydicom.dcmread(path))
    affine = np.eye(4)
    affine[:3, :3] = result.direction * result.spacing
    affine[:3, 3] = result.origin
    return result.data.transpose(2, 1, 0), FLIP @ affine


def by_dcmqi(path: Path) -> Read:
    dcmqi = pytest.importorskip("dcmqi")
    program = Path(dcmqi.__file__).parent / "bin" / "segimage2itkimage"
    with tempfile.TemporaryDirectory() as folder:
        words = [program, "--inputDICOM", path, "--outputDirectory", folder, "-t", "nii", "--mergeSegments"]
        subprocess.run(words, check=True, capture_output=True)
        image = nib.load(Path(folder) / "1.nii.gz")
        return np.asarray(image.dataobj), image.affine


READERS: dict[str, Callable[[Path], Read]] = {
    "highdicom": by_highdicom,
    "pydicom-seg": by_pydicom_seg,
    "dcmqi": by_dcmqi,
}


def disagreements(path: Path, labels: NDArray[Any], affine: NDArray[np.float64], reader: str) -> list[str]:
    """What one of the READERS sees otherwise than `labels` on `affine`; it may leave out slices without labels."""
    found, where = READERS[reader](path)
    words = []
    if not np.allclose(where[:3, :3], affine[:3, :3], atol=1e-4):
        words.append(f"{reader}: voxel axes {where[:3, :3].round(4).tolist()}, not {affine[:3, :3].round(4).tolist()}")
    for number in np.unique(labels[labels > 0]):
        ours, theirs = (
            nib.affines.apply_affine(a, np.argwhere(mask == number)) for a, mask in ((affine, labels), (where, found))
        )
        if len(ours) != len(theirs) or not _same_places(ours, theirs):
            words.append(f"{reader}: label {number} lies elsewhere, or has {len(theirs)} voxels, not {len(ours)}")
    if set(np.unique(found)) - {0} != set(np.unique(labels)) - {0}:
        words.append(f"{reader}: labels {np.unique(found)}, not {np.unique(labels)}")
    return words


def _same_places(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    from scipy.spatial import cKDTree

    apart, _ = cKDTree(ours).query(theirs)
    return bool(np.max(apart) < 0.01)  # mm
