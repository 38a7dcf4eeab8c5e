"""What a cohort is: a folder, a text or CSV list of scans, or a pattern such as 'patients/*/t1.nii.gz'."""

from __future__ import annotations

import csv
import glob
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mona_infer.errors import InputError
from mona_infer.io.formats import CASES, FORMAT_NAMES, SEG, WRITTEN, stem
from mona_infer.io.remote import is_remote
from mona_infer.segmenting.jobs import Job, find_jobs, is_label, mask_suffix, named_jobs

LISTS = (".txt", ".csv")
COLUMNS = ("scan", "path", "image", "file")  # of a CSV list: the scans
NAMES = ("case", "name")  # and what their masks are called


def find_cohort(
    place: str, out: Path, reference: Path | None = None, format: str | None = None
) -> tuple[list[Job], bool]:
    """The jobs, and whether they are a cohort or one single scan, as `find_jobs` finds them for files and folders."""
    path = Path(place)
    if path.is_file() and path.suffix.lower() in LISTS:
        named = listed(path)
    elif glob.has_magic(place) and not path.exists():
        named = matched(place, out)
    else:
        return find_jobs(path, out, reference, format)
    if out.name.endswith((*WRITTEN, SEG)):
        raise InputError(f"{place} names several scans but {out} a single mask; give --out a folder")
    if reference is not None and not reference.exists():
        raise InputError(f"{reference} (from --reference) does not exist")
    jobs = named_jobs(named, out, reference, mask_suffix(format))
    for job in jobs:
        if job.out.absolute() == job.scan.absolute():
            raise InputError(f"the mask of {job.scan} would have the name of the scan; choose another --out")
    return jobs, True


def matched(pattern: str, out: Path) -> list[tuple[str, Path]]:
    """Scans and DICOM folders that a pattern matches, named by their place below its first folders without one."""
    parts = Path(pattern).parts
    base = Path(*parts[: next(n for n, part in enumerate(parts) if glob.has_magic(part))])
    if "**" in parts and out.resolve().is_relative_to(base.resolve()):
        raise InputError(f"{out} is inside {base}, so masks would be mistaken for scans; choose another --out")
    found = sorted(Path(match) for match in glob.glob(pattern, recursive=True))  # noqa: PTH207  Path.glob is relative
    scans = [path for path in found if path.is_dir() or path.name.lower().endswith((*CASES, ".zip"))]
    if not scans:
        raise InputError(f"{pattern} matches no scan: no {FORMAT_NAMES} file, no .zip and no folder of DICOM files")
    stems: dict[Path, set[str]] = {}
    for path in scans:
        stems.setdefault(path.parent, set()).add(stem(path))
    return [_named(path, base) for path in scans if path.is_dir() or not is_label(path, stems[path.parent])]


def listed(path: Path) -> list[tuple[str, Path]]:
    """The scans in a list, named by a column of it, else by their place below its folder (or a folder of them all)."""
    rows = _read(path)
    scans = [path.parent / scan for scan, _ in rows]
    base = path.parent
    if not all(_below(scan, base) for scan in scans):
        base = Path(os.path.commonpath([_plain(scan).parent for scan in scans]))
    return sorted(
        (_checked(name, path), scan) if name else _named(scan, base)
        for scan, (_, name) in zip(scans, rows, strict=True)
    )


def remote_rows(path: Path) -> list[tuple[str, str]]:
    """The scans of a list and their names, if they are in a store; nothing, if they are files."""
    rows = [(scan, _checked(name, path) if name else "") for scan, name in _read(path)]
    remote = sum(is_remote(scan) for scan, _ in rows)
    if remote not in (0, len(rows)):
        raise InputError(
            f"{path} lists {remote} scans in a store and {len(rows) - remote} files; give one list of each"
        )
    return rows if remote else []


def _read(path: Path) -> list[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a list of scans: {error}") from error
    rows = list(_rows(path, text) if path.suffix.lower() == ".csv" else _lines(text))
    if not rows:
        raise InputError(f"{path} lists no scans; expected one path in each line")
    return rows


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip(), ""


def _rows(path: Path, text: str) -> Iterator[tuple[str, str]]:
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    if not rows:
        return
    header = [cell.strip().lower() for cell in rows[0]]
    scan = next((header.index(name) for name in COLUMNS if name in header), 0)
    name = next((header.index(name) for name in NAMES if name in header), None)
    first = rows[0][scan].strip()
    headless = header[scan] not in COLUMNS and (
        first.lower().endswith((*CASES, ".zip")) or (path.parent / first).exists()
    )
    for row in rows if headless else rows[1:]:
        if scan < len(row) and row[scan].strip():
            yield row[scan].strip(), row[name].strip() if name is not None and name < len(row) else ""


def _plain(path: Path) -> Path:
    """Absolute and without `..`, which may lead out of --out; links stay, as the user named them."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _below(scan: Path, base: Path) -> bool:
    return _plain(scan).is_relative_to(_plain(base))


def _named(scan: Path, base: Path) -> tuple[str, Path]:
    place = _plain(scan).parent.relative_to(_plain(base))
    return (place / stem(scan)).as_posix(), scan


def _checked(name: str, path: Path) -> str:
    """A name from a list becomes a path below --out, and nowhere else."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or not pure.name or "\0" in name:
        raise InputError(f"{path}: {name!r} cannot be the name of a mask in --out; give a name like patient_001")
    return pure.as_posix()
