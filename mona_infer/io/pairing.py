"""Which reference belongs to which scan or mask, according to their file names.

The scan of case `heart_001` is heart_001.nii.gz or, as nnU-Net names the first channel, heart_001_0000.nii.gz.  A mask
has its scan's name.  A reference is heart_001.nii.gz or, as in ACDC, heart_001_gt.nii.gz.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.formats import CASES, FORMAT_NAMES, SEG, check_is_file_or_folder, stem

REFERENCE = "_gt"  # ACDC's references
CHANNEL = re.compile(r"_\d{4}$")  # nnU-Net's scans


@dataclass(frozen=True)
class Case:
    name: str
    prediction: Path
    reference: Path


def reference_names(name: str) -> list[str]:
    """Possible names for the reference of a scan or mask, most likely first.

    Only the scan's name may end in a channel: patient_0001 is never mistaken for the reference of patient_0002.
    """
    plain = CHANNEL.sub("", name)
    return [f"{name}{REFERENCE}", name] + ([f"{plain}{REFERENCE}", plain] if plain != name else [])


def reference_of(name: str, folder: Path) -> Path:
    """The reference in `folder` for the scan `name` (its path inside the folder of scans)."""
    place = (folder / name).parent
    files = sorted(p for p in place.iterdir() if p.is_file()) if place.is_dir() else []
    there = {stem(p): p for p in files if p.name.lower().endswith((*CASES, SEG))}
    found = next((there[Path(n).name] for n in reference_names(name) if Path(n).name in there), None)
    if found is None:
        names = dict.fromkeys(f"{Path(other).name}.nii.gz" for other in reversed(reference_names(name)))
        raise InputError(f"{folder} has no reference for {name}; looked for {', '.join(names)}")
    return found


def scan_of(name: str, folder: Path) -> Path:
    """The scan of case `name`: a file, a zip or a folder with a DICOM series."""
    there = {stem(p): p for p in sorted(folder.iterdir()) if p.is_dir() or p.name.lower().endswith((*CASES, ".zip"))}
    wanted = (name, f"{name}_0000", Path(name).name)
    found = next((there[n] for n in wanted if n in there), None)
    if found is None:
        raise InputError(f"{folder} has no scan for {name}; looked for {name}.nii.gz and {name}_0000.nii.gz")
    return found


def match_cases(prediction: Path, reference: Path) -> list[Case]:
    """Pair two files, or the files of two folders; every reference needs its prediction."""
    for path in (prediction, reference):
        check_is_file_or_folder(path)
    if not reference.is_dir():
        if prediction.is_dir() and (count := scans_in(prediction)):  # else it is a DICOM series
            raise InputError(
                f"{prediction} is a folder of {count} masks and {reference} is one file; give two files or two folders"
            )
        return [Case(stem(reference), prediction, reference)]
    if not prediction.is_dir():
        raise InputError(f"{prediction} is a file and {reference} is a folder; give two files or two folders")
    predictions, references = masks_in(prediction), masks_in(reference)
    for name in references:
        if name + REFERENCE in references:
            both = f"{references[name]} and {references[name + REFERENCE]}"
            raise InputError(f"{both} are both references for the same case; keep one")
    matched: dict[str, tuple[int, str]] = {}  # reference -> rank of its prediction, 0 the most likely, and its name
    for name in predictions:
        rank, found = next(((n, r) for n, r in enumerate(reference_names(name)) if r in references), (0, None))
        if found is None:
            continue
        if found in matched and matched[found][0] // 2 == rank // 2:
            both = f"{predictions[matched[found][1]]} and {predictions[name]}"
            raise InputError(f"{both} are both predictions for {references[found]}; keep one")
        matched[found] = min(matched.get(found, (rank, name)), (rank, name))
    missing = sorted(name.removesuffix(REFERENCE) for name in set(references) - set(matched))
    if missing:
        raise InputError(
            f"{prediction} has no mask for {len(missing)} of {len(references)} references "
            f"({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}); a missing case cannot be scored"
        )
    return [
        Case(found.removesuffix(REFERENCE), predictions[name], references[found])
        for found, (_, name) in sorted(matched.items())
    ]


def masks_in(folder: Path) -> dict[str, Path]:
    """The masks of a folder by name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if not path.is_file() or not path.name.lower().endswith((*CASES, SEG)) or path.name.startswith("."):
            continue
        if stem(path) in found:
            raise InputError(f"{found[stem(path)]} and {path} are the same case; keep one")
        found[stem(path)] = path
    if not found:
        raise InputError(f"{folder} contains no masks: no {FORMAT_NAMES} file, and no DICOM-SEG (.dcm)")
    return found


def scans_in(folder: Path) -> int:
    """How many scan files and zips a folder holds; 0 if there is a DICOM file among them, which makes it a series."""
    from mona_infer.io.read import is_dicom  # imported here: it needs NumPy, which `mona evaluate --help` does not

    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
    scans = [p for p in files if p.name.lower().endswith((*CASES, ".zip"))]
    return 0 if scans and any(is_dicom(p) for p in set(files) - set(scans)) else len(scans)
