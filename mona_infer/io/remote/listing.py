"""What a store holds: the scans below a folder, by the rules for folders on a disk, from one listing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mona_infer.errors import InputError
from mona_infer.io.formats import CASES, FORMAT_NAMES, stem_of_name
from mona_infer.io.pairing import REFERENCE
from mona_infer.io.remote.place import Place, parse
from mona_infer.io.remote.stores import store_of

MAGIC = re.compile(r"[*?[]")
SCANS = (*CASES, ".zip")


def find_scans(place: str) -> list[str]:
    """The scans of a folder or a pattern; an object is itself."""
    return [scan for _, scan in named_scans(place)]


def named_scans(place: str, *, folder_of_files: bool = False) -> list[tuple[str, str]]:
    """Each scan and its case's name: its place below the folder, or below the first folders of a pattern.

    `folder_of_files`: a folder that holds no scan but other files is a scan itself, a DICOM series.
    """
    where = parse(place)
    store = store_of(where)
    if where.name and not place.endswith("/") and store.stat(where) is not None:
        return [(stem_of_name(where.name), place)]
    if MAGIC.search(where.path):
        base, fits = _pattern(where)
        names = [name for name in cases_of(store.names(base)) if fits.match(name.rstrip("/"))]
        missing = f"{place} matches no scan"
    else:
        listed = list(store.names(where))
        base, names = where, list(cases_of(listed))
        if folder_of_files and listed and not any(name.lower().endswith(SCANS) for name in listed):
            return [(where.name, f"{place.rstrip('/')}/")]
        missing = f"{place} contains no scans"
    if not names and where.name.lower().endswith(SCANS) and not MAGIC.search(where.path):
        raise InputError(f"{place} does not exist")
    if not names:
        raise InputError(f"{missing}: no {FORMAT_NAMES} file, no .zip and no folder of DICOM files")
    found: dict[str, str] = {}
    for name in names:
        case = name.rstrip("/") if name.endswith("/") else stem_of_name(name)
        if case in found:
            raise InputError(f"{found[case]} and {base.under(name)} are the same case; keep one")
        found[case] = str(base.under(name))
    return list(found.items())


def names_in(place: str) -> set[str]:
    """The names of all objects below a folder, such as p1/mask.nii.gz; none, if there is no such folder."""
    where = parse(place)
    return {name for name in store_of(where).names(where) if not name.endswith("/")}


def exists(place: str) -> bool:
    where = parse(place)
    return store_of(where).stat(where) is not None


def cases_of(names: Iterable[str]) -> Iterator[str]:
    """Scan files and zips at any depth; a folder that has none of these at any depth is one DICOM case, and its name
    ends in /.
    """
    files: set[str] = set()
    folders: dict[str, list[str]] = {}
    for name in names:
        first, slash, rest = name.partition("/")
        if first.startswith(".") and first != "..":  # hidden; what would lead out is named as bad when it is read
            continue
        if not slash:
            files.add(first)
        elif rest and not rest.endswith("/"):
            folders.setdefault(first, []).append(rest)
    stems = {stem_of_name(name) for name in files if name.lower().endswith(CASES)}
    for entry in sorted({*files, *folders}):
        if entry in files and entry.lower().endswith(SCANS) and not _is_label(entry, stems):
            yield entry
        if entry in folders:
            below = [name for name in folders[entry] if not name.rpartition("/")[2].startswith(".")]
            if any(name.lower().endswith(SCANS) for name in below):
                for name in cases_of(below):
                    yield f"{entry}/{name}"
            elif below:
                yield f"{entry}/"


def _is_label(name: str, stems: set[str]) -> bool:
    stem = stem_of_name(name)
    return stem.endswith(REFERENCE) and stem.removesuffix(REFERENCE) in stems


def _pattern(where: Place) -> tuple[Place, re.Pattern[str]]:
    """The folder above the first part with a pattern in it, and the pattern of names below that."""
    from fsspec.utils import glob_translate

    parts = where.path.split("/")
    first = next(n for n, part in enumerate(parts) if MAGIC.search(part))
    if first == 0 and where.scheme != "zip":
        raise InputError(f"{where}: the bucket cannot be a pattern")
    base = Place(where.scheme, "/".join(parts[:first]), where.outer)
    return base, re.compile(glob_translate("/".join(parts[first:])))
