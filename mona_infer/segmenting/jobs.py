"""What to segment: one scan, or the cases in a folder, and where each mask goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.formats import CASES, FORMAT_NAMES, NIFTI, READ, SEG, WRITTEN, stem
from mona_infer.io.pairing import REFERENCE, reference_of, scans_in


@dataclass(frozen=True)
class Job:
    name: str
    scan: Path
    out: Path
    reference: Path | None = None
    page: Path | None = None
    back: str = ""  # from the page to that of all cases
    source: str = ""  # where the scan is, if it is in a store; `scan` is then only its name
    target: str = ""  # and where the mask goes
    record: Path | None = None  # its report as JSON, for a summary that later commands complete


def find_jobs(
    scan: Path, out: Path, reference: Path | None = None, format: str | None = None
) -> tuple[list[Job], bool]:
    """The jobs, and whether this is a folder job: SCAN is a folder and --out is not the name of a mask.

    `format` is the ending of the masks of a folder, without the dot.
    """
    suffix = mask_suffix(format)
    if not scan.exists():
        raise InputError(f"{scan} does not exist")
    if reference is not None and not reference.exists():
        raise InputError(f"{reference} (from --reference) does not exist")
    if out.name.endswith((*WRITTEN, SEG)):
        if out.name.endswith(SEG) and scan.name.lower().endswith(READ):
            kind = "NIfTI" if scan.name.lower().endswith(NIFTI) else "not DICOM"
            raise InputError(
                f"{scan} is {kind}, so there is no series for a DICOM-SEG to refer to; give --out a .nii.gz name"
            )
        if format and not out.name.endswith(suffix):
            raise InputError(f"--format {format} contradicts --out {out}; --format is for a folder of scans")
        if out.resolve() == scan.resolve():
            raise InputError(f"{out} is the scan itself; give the mask another name")
        if scan.is_dir() and (count := scans_in(scan)):
            raise InputError(f"{scan} is a folder of {count} scans but {out} names a single mask; give --out a folder")
        if reference is not None and reference.is_dir() and scan.is_file() and scans_in(reference):
            reference = reference_of(stem(scan), reference)
        return [Job(stem(scan), scan, out, reference)], False
    if not scan.is_dir():
        raise InputError(f"{out}: a mask must end in .nii.gz, .nii, .nrrd or .seg.nrrd (or .dcm, for a DICOM series)")
    if out.resolve().is_relative_to(scan.resolve()):
        raise InputError(f"{out} is inside {scan}, so masks would be mistaken for scans; choose another --out")
    named = (((path.parent / stem(path)).relative_to(scan).as_posix(), path) for path in _cases(scan))
    jobs = named_jobs(named, out, reference, suffix)
    if not jobs:
        raise InputError(f"{scan} contains no scans: no {FORMAT_NAMES} file, no .zip and no folder of DICOM files")
    return jobs, True


def mask_suffix(format: str | None) -> str:
    """The ending of the masks of a folder, with its dot."""
    suffix = f".{(format or 'nii.gz').lower().removeprefix('.')}"
    if suffix not in (*WRITTEN, SEG):
        known = ", ".join(known.removeprefix(".") for known in (*WRITTEN, SEG))
        raise InputError(f"unknown --format {format!r}; choose one of {known}")
    return suffix


def named_jobs(named: Iterable[tuple[str, Path]], out: Path, reference: Path | None, suffix: str) -> list[Job]:
    """A job for each case, whose mask in `out` has the case's name."""
    jobs: dict[str, Job] = {}
    for name, path in named:
        if name in jobs:
            raise InputError(f"{jobs[name].scan} and {path} are the same case; keep one")
        jobs[name] = Job(name, path, out / f"{name}{suffix}", _reference(name, reference))
    return list(jobs.values())


def _cases(folder: Path) -> Iterator[Path]:
    """Scan files and zips at any depth; a folder that has none of these at any depth is one DICOM case."""
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    names = {stem(p) for p in entries if p.name.lower().endswith(CASES)}
    for path in entries:
        if path.is_dir() and not path.is_symlink():  # a link could lead back up
            below = [p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")]
            if any(p.name.lower().endswith((*CASES, ".zip")) for p in below):
                yield from _cases(path)
            elif below:
                yield path
        elif path.name.lower().endswith((*CASES, ".zip")) and not is_label(path, names):
            yield path


def is_label(path: Path, names: set[str]) -> bool:
    """ACDC stores references next to scans: x_gt.nii.gz is not a scan if x.nii.gz is there."""
    return stem(path).endswith(REFERENCE) and stem(path).removesuffix(REFERENCE) in names


def _reference(name: str, reference: Path | None) -> Path | None:
    if reference is None:
        return None
    if not reference.is_dir():
        raise InputError(
            f"{reference} is a file; for a folder of scans, --reference must be a folder with the same file names"
        )
    return reference_of(name, reference)
