"""A scan from a store into a folder here, and a mask from here into a store: whole, checked, or not at all."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path
from mona_infer.io.remote.place import Place, local_name, parse, refuse_wandering
from mona_infer.io.remote.retry import Incomplete, http_status, patiently
from mona_infer.io.remote.stores import Stat, Store, store_of
from mona_infer.system.memory_budget import size_in_words

# A header's voxels are in a file of the same name beside it.
BESIDE = {
    ".hdr.gz": (".img.gz", ".img"),
    ".hdr": (".img", ".img.gz"),
    ".nhdr": (".raw", ".raw.gz", ".zraw", ".img"),
    ".mhd": (".raw", ".zraw", ".img"),
}


def fetch(place: str, folder: Path) -> Path:
    """Copy a scan into a folder, under its own name, which its format is known by; a place that ends in / is a folder
    of DICOM files.

    Nothing is written outside `folder`, whatever the object is called.
    """
    where = parse(place)
    store, name = store_of(where), local_name(where)
    if place.endswith("/") or (where.scheme == "zip" and where.path.endswith("/")):
        return _fetch_folder(store, where, folder / name)
    path = _fetch_file(store, where, folder / name)
    ending = next((e for e in BESIDE if name.lower().endswith(e)), "")
    for other in BESIDE.get(ending, ()):
        beside = where.parent.under(name[: -len(ending)] + other)
        if (stat := store.stat(beside)) is not None:
            _download(store, beside, stat, folder / beside.name)
            break
    return path


def _fetch_folder(store: Store, where: Place, folder: Path) -> Path:
    names = [name for name in store.names(where) if not name.endswith("/")]
    if not names:
        raise InputError(f"{where} does not exist, or is empty")
    for name in names:
        refuse_wandering(str(where.under(name)), name)
        if name.rpartition("/")[2].startswith("."):
            continue
        _fetch_file(store, where.under(name), folder.joinpath(*name.split("/")))
    return folder


def _fetch_file(store: Store, where: Place, path: Path) -> Path:
    stat = store.stat(where)
    if stat is None:
        raise InputError(f"{where} does not exist")
    local_name(where)
    _download(store, where, stat, path)
    return path


def _download(store: Store, where: Place, stat: Stat, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if stat.size > free:
        there = f"{size_in_words(stat.size)}, but {path.parent} has {size_in_words(free)} left"
        raise InputError(f"{where} has {there}; give TMPDIR a folder on a larger disk")
    seen: set[str] = set()
    now = stat

    def copy() -> None:
        nonlocal now
        digest, size = hashlib.md5(usedforsecurity=False), 0
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            try:
                for data in store.pieces(where, now):
                    file.write(data)
                    digest.update(data)
                    size += len(data)
            except InputError as error:
                if error.__cause__ is None or http_status(error.__cause__) != 412:
                    raise
                now = store.stat(where) or now
                raise Incomplete("it is being replaced while it is read") from error
            if size != now.size:
                raise Incomplete(f"{size} of {now.size} bytes arrived")
            # Twice the same bytes: then it is the store whose tag is no checksum.
            if now.md5 and digest.hexdigest() != now.md5 and digest.hexdigest() not in seen:
                seen.add(digest.hexdigest())
                raise Incomplete("what arrived has another checksum than the store tells")

    patiently(copy, "read", where)


def publish(path: Path, place: str) -> None:
    """Store a file under its final name: whole or not at all, and compared with what the store says it holds."""
    where = parse(place)
    if not where.name or place.endswith("/"):
        raise InputError(f"{place} is a folder; give the name of the file to write")
    refuse_wandering(place, where.path)
    store_of(where).write(path, where)
