"""A file that a client sent: what it is, judging by its bytes and never by its name, and whether it can be read."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from mona_infer.errors import InputError
from mona_infer.io.formats import SEG
from mona_infer.io.metaimage import open_metaimage
from mona_infer.io.nifti import open_nifti
from mona_infer.io.nrrd import open_nrrd
from mona_infer.io.scan_file import ScanFile

HEAD = 1024
OPENERS = {".nii": open_nifti, ".nii.gz": open_nifti, ".nrrd": open_nrrd, ".mha": open_metaimage}
EXPECTED = (
    "expected a NIfTI (.nii, .nii.gz), NRRD (.nrrd) or MetaImage (.mha) file, or DICOM (.dcm or a zip of a series)"
)


def suffix_of(path: Path) -> str:
    """The ending that a file with this content should have."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        raise InputError(f"the file is empty (0 bytes); {EXPECTED}")
    if head[128:132] == b"DICM":
        return SEG
    if head[:2] == b"PK":
        return ".zip"
    if head[:4] == b"NRRD":
        return ".nrrd"
    if head[:2] == b"\x1f\x8b":
        return ".nii.gz" if _is_nifti(_unpacked(head)) else _unknown()
    if _is_nifti(head):
        return ".nii"
    if any(line.startswith((b"ObjectType", b"NDims")) for line in head.splitlines()):
        return ".mha"
    return _unknown()


def _is_nifti(head: bytes) -> bool:
    return head[344:347] == b"n+1" or head[4:7] == b"n+2"


def _unpacked(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, HEAD)
    except (zlib.error, gzip.BadGzipFile):
        return b""


def _unknown() -> str:
    raise InputError(f"the file is not a scan that mona reads; {EXPECTED}")


def header_of(path: Path) -> ScanFile:
    """The header of a file that is not DICOM; one whose voxels are elsewhere is refused."""
    suffix = next(end for end in sorted(OPENERS, key=len, reverse=True) if path.name.endswith(end))
    scan = OPENERS[suffix](path)
    if scan.stored.path != path:  # a detached header: what it names is not the client's to choose
        raise InputError("the file's voxels are in another file; save the scan as one file")
    return scan


def spacing_of(scan: ScanFile) -> list[float]:
    return [round(float(s), 6) for s in np.sqrt((scan.affine[:3, :3] ** 2).sum(axis=0))]
