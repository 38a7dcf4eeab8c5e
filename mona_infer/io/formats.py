"""Which file names are scans or masks, and the case name of a file or folder."""

from __future__ import annotations

import stat
from pathlib import Path

from mona_infer.errors import InputError

NIFTI = (".nii.gz", ".nii")
PAIR = (".hdr", ".hdr.gz", ".img", ".img.gz")  # Analyze 7.5, or NIfTI as two files
NRRD = (".seg.nrrd", ".nrrd", ".nhdr")
META = (".mha", ".mhd")
READ = (*NIFTI, *PAIR, *NRRD, *META)
# One file per scan: of a pair, only the header file.  Longest ending first.
CASES = (*NIFTI, ".hdr.gz", ".hdr", *NRRD, *META)
WHOLE = (*NIFTI, ".seg.nrrd", ".nrrd", ".mha")  # header and voxels in one file, so its hash identifies the scan
WRITTEN = (*NIFTI, ".seg.nrrd", ".nrrd")
SEG = ".dcm"  # a mask with this ending is a DICOM Segmentation
FORMAT_NAMES = "NIfTI (.nii, .nii.gz), Analyze (.hdr with .img), NRRD (.nrrd, .nhdr) or MetaImage (.mha, .mhd)"


def stem(path: Path) -> str:
    """The name without its format ending, in upper or lower case."""
    return path.name if path.is_dir() else stem_of_name(path.name)


def stem_of_name(name: str) -> str:
    """The same of a name alone, which is not looked for on the disk."""
    ends = (e for e in (*READ, SEG, ".zip") if name.lower().endswith(e))
    return name[: -len(next(ends, "")) or None]


def check_is_file_or_folder(path: Path) -> None:
    """Refuse missing files, and pipes, sockets and devices, which can block a reader forever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # no permission, a link to itself, a null character
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kinds = {stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
        kind = next((name for test, name in kinds.items() if test(mode)), "a device")
        raise InputError(f"{path} is {kind}, not a file; save the scan to a file and give its name")
