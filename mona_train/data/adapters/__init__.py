"""Data sets on disk.  Each module here that defines ADAPTER is one; to add another, add a file.

`locate` turns what a user typed into an adapter and a folder.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
from pathlib import Path

from mona_infer.errors import InputError
from mona_train.data.case import Adapter


def adapters() -> dict[str, Adapter]:
    """All of them, sorted by name; modules without an ADAPTER are helpers."""
    found: dict[str, Adapter] = {}
    for module in pkgutil.iter_modules(__path__):
        adapter = getattr(importlib.import_module(f"{__name__}.{module.name}"), "ADAPTER", None)
        if adapter is None:
            continue
        if adapter.name in found:
            raise InputError(f"two modules of {__name__} define the data set {adapter.name!r}; rename one of them")
        found[adapter.name] = adapter
    return dict(sorted(found.items()))


def names() -> list[str]:
    return list(adapters())


def adapter_named(name: str) -> Adapter:
    known = adapters()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InputError(
        f"unknown data set {name!r}; {hint}choose one of {', '.join(known)}, "
        "or give the path of a folder that contains a dataset.json"
    )


def recognise(folder: Path) -> Adapter:
    """The only adapter whose layout this folder has."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    fits = [adapter for adapter in adapters().values() if adapter.recognises(folder)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise InputError(
            f"{folder} can be read as {' or as '.join(a.name for a in fits)}; "
            f"choose one, e.g. --dataset {fits[0].name} --data {folder}"
        )
    raise InputError(
        f"{folder} does not have the layout of any known data set ({', '.join(names())}); for your own data, "
        f"use this layout: {adapter_named('folder').layout}"
    )


def locate(name_or_path: str, data: Path | None = None) -> tuple[Adapter, Path]:
    """What `--dataset` and `--data` mean: an adapter and the folder it reads.

    A known name is searched for at `data`, otherwise at $MONA_DATA/<name>, ./data/<name> and ./<name>.  A folder, or
    anything with a path separator in it, is the data itself: acdc is a name and ./acdc is a folder.
    """
    if name_or_path not in adapters():
        path = Path(name_or_path).expanduser()
        separated = os.sep in name_or_path or (os.altsep is not None and os.altsep in name_or_path)
        if data is None and (separated or path.is_dir()):
            return recognise(path), path
    adapter = adapter_named(name_or_path)
    if not adapter.layout:  # built in
        return adapter, data or Path()
    places = [data.expanduser()] if data else _places(adapter.name)
    for place in places:
        if place.is_dir() and adapter.recognises(place):
            return adapter, place
    raise InputError(_missing(adapter, places, given=data is not None))


def _places(name: str) -> list[Path]:
    root = os.environ.get("MONA_DATA")
    return [*([Path(root).expanduser() / name] if root else []), Path("data") / name, Path(name)]


def _missing(adapter: Adapter, places: list[Path], given: bool) -> str:
    """Where to get the data, its licence, the expected layout, and where it was searched for."""
    searched = ", ".join(
        f"{p} ({'has another layout' if p.is_dir() else 'is a file' if p.exists() else 'does not exist'})"
        for p in places
    )
    elsewhere = "" if given else "; give its path or set $MONA_DATA"
    return (
        f"the data set {adapter.name} was not found. Get it from {adapter.source}. Licence: {adapter.licence}. "
        f"Expected layout: {adapter.layout}. Searched: {searched}{elsewhere}"
    )
