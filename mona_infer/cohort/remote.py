"""Cohorts whose scans, or whose masks, or both, are in a store: `s3://bucket/scans`, `zip://::s3://bucket/scans.zip`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mona_infer.cohort.listing import LISTS, find_cohort, remote_rows
from mona_infer.errors import InputError
from mona_infer.io.formats import SEG, WRITTEN, stem_of_name
from mona_infer.io.remote import exists, is_remote, named_scans, names_in
from mona_infer.io.remote.place import parse
from mona_infer.segmenting.jobs import Job, mask_suffix


def find_jobs(place: str, out: str, reference: Path | None = None, format: str | None = None) -> tuple[list[Job], bool]:
    """As `find_cohort`, where SCAN, or --out, or both may be in a store.

    A job's scan and out are then names, not files; where they are is its `source` and `target`.
    """
    if is_remote(out) and parse(out).scheme == "zip":
        raise InputError(f"{out} cannot be written: zips are for reading; give a folder or a store")
    if _is_list(place) and (rows := remote_rows(Path(place))):
        return _listed(place, rows, out, reference, format), True
    if not is_remote(place):
        return _with_targets(place, out, reference, format)
    single = out.lower().endswith((*WRITTEN, SEG))
    if reference is not None:
        raise InputError(f"--reference cannot be used with {place}; segment first, then use `mona evaluate`")
    suffix = mask_suffix(format)
    if is_remote(out) and _inside(out, place) and not single:
        raise InputError(f"{out} is inside {place}, so masks would be mistaken for scans; choose another --out")
    scans = named_scans(place, folder_of_files=single)
    if len(scans) == 1 and scans[0][1].rstrip("/") == place.rstrip("/"):
        if not single:
            raise InputError(
                f"{out}: a mask must end in .nii.gz, .nii, .nrrd or .seg.nrrd (or .dcm, for a DICOM series)"
            )
        if format and not out.endswith(suffix):
            raise InputError(f"--format {format} contradicts --out {out}; --format is for a folder of scans")
        name, source = scans[0]
        if out == place:
            raise InputError(f"{out} is the scan itself; give the mask another name")
        return [_job(name, source, out)], False
    if single:
        raise InputError(f"{place} holds {len(scans)} scans but {out} names a single mask; give --out a folder")
    return _jobs(scans, out, suffix), True


def refuse_places(**paths: Path | str | None) -> None:
    """Options that are files on this disk: a Path would make a folder `s3:` of a place."""
    for name, path in paths.items():
        if path is not None and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
            raise InputError(f"--{name} is a file or folder on this disk, not in a store; found {path}")


def _is_list(place: str) -> bool:
    return place.lower().endswith(LISTS) and not is_remote(place) and Path(place).is_file()


def _listed(place: str, rows: list[tuple[str, str]], out: str, reference: Path | None, format: str | None) -> list[Job]:
    """Scans in a list are named by a column of it, else by their place below the folder of them all."""
    if reference is not None or out.lower().endswith((*WRITTEN, SEG)):
        wrong = f"--reference cannot be used with {place}" if reference else f"{out} names a single mask"
        raise InputError(f"{wrong}, which lists scans in a store; give --out a folder, then use `mona evaluate`")
    folders = [scan.split("/")[:-1] for scan, _ in rows]
    common = folders[0]
    while any(folder[: len(common)] != common for folder in folders):
        common = common[:-1]
    base = "/".join(common)
    named = [(given or stem_of_name(scan[len(base) :].strip("/")), scan) for scan, given in rows]
    return _jobs(sorted(named), out, mask_suffix(format))


def without_mask(jobs: list[Job], out: str) -> list[Job]:
    """The jobs that have no mask yet: those of a folder in a store are told from one listing."""
    if not is_remote(out):
        return [job for job in jobs if not job.out.exists()]
    if len(jobs) == 1 and jobs[0].target == out:
        return [] if exists(out) else jobs
    there = names_in(out)
    base = out.rstrip("/") + "/"
    return [job for job in jobs if job.target.removeprefix(base) not in there]


def has_mask(job: Job) -> bool:
    if not job.target:
        return job.out.exists()
    try:
        return exists(job.target)
    except InputError:  # a store that does not answer: what it says to the scan's request is told
        return False


def _with_targets(scan: str, out: str, reference: Path | None, format: str | None) -> tuple[list[Job], bool]:
    """Local scans, masks in a store: each under the name that it would have in a folder."""
    if not is_remote(out):
        return find_cohort(scan, Path(out), reference, format)
    folder = Path("/.in-a-store")  # stands for `out` while names are made; nothing is written there
    single = out.lower().endswith((*WRITTEN, SEG))
    given = folder / parse(out).name if single else folder / "of"
    jobs, many = find_cohort(scan, given, reference, format)
    if not many:
        return [replace(job, target=out) for job in jobs], False
    base = out.rstrip("/")
    return [replace(job, target=f"{base}/{job.out.relative_to(given).as_posix()}") for job in jobs], True


def _job(name: str, source: str, out: str) -> Job:
    target = out if is_remote(out) else ""
    return Job(name, Path(parse(source).path), Path(parse(out).path if target else out), source=source, target=target)


def _jobs(named: list[tuple[str, str]], out: str, suffix: str) -> list[Job]:
    jobs: dict[str, Job] = {}
    for given, source in named:
        name = _harmless(given)
        if name in jobs:
            raise InputError(f"{jobs[name].source} and {source} are the same case; keep one")
        jobs[name] = _job(name, source, f"{out.rstrip('/')}/{name}{suffix}")
    return list(jobs.values())


def _harmless(name: str) -> str:
    """A scan whose name would lead out of its folder is refused when it is read; nothing has such a name here."""
    return "/".join("__" if part in (".", "..", "") else part for part in name.split("/"))


def _inside(out: str, scans: str) -> bool:
    return f"{out.rstrip('/')}/".startswith(f"{scans.rstrip('/')}/")
