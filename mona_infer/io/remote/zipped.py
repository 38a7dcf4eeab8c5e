"""Scans inside a zip, which may lie in a store: only what is needed of it is read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.decompression_bombs import refuse_bomb
from mona_infer.io.remote.place import Place, is_remote, parse
from mona_infer.io.remote.stores import PIECE, Ranged, Stat, store_of

AHEAD = 1 << 20  # bytes of a remote zip that are read at a time


class Zipped:
    def stat(self, place: Place) -> Stat | None:
        found = _member(place)
        return None if found is None else Stat(found.file_size, str(found.CRC))

    def pieces(self, place: Place, stat: Stat) -> Iterator[bytes]:
        found = _member(place)
        if found is None:
            raise InputError(f"{place} does not exist")
        refuse_bomb(str(place), found.compress_size, found.file_size, "unpack the zip")
        try:
            with _opened(place.outer).open(found) as file:
                while data := file.read(PIECE):
                    yield data
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
            raise InputError(f"{place} cannot be read: {error}") from error  # damaged, encrypted, a rare compression

    def names(self, folder: Place) -> Iterator[str]:
        base = f"{folder.path.rstrip('/')}/".lstrip("/")
        for name in _opened(folder.outer).namelist():
            if name.startswith(base) and name != base:
                yield name.removeprefix(base)

    def write(self, path: Path, place: Place) -> None:
        raise InputError(f"{place} cannot be written: zips are for reading; give a folder")


def _member(place: Place) -> zipfile.ZipInfo | None:
    try:
        found = _opened(place.outer).getinfo(place.path)
    except KeyError:
        return None
    return None if found.is_dir() else found


@lru_cache(maxsize=2)
def _opened(outer: str) -> zipfile.ZipFile:
    """Its list of names is read once; it may be long."""
    try:
        if not is_remote(outer):
            return zipfile.ZipFile(outer)
        return zipfile.ZipFile(io.BufferedReader(_Remote(parse(outer)), AHEAD))
    except FileNotFoundError:
        raise InputError(f"{outer} does not exist") from None
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise InputError(f"{outer} cannot be read as a zip: {error}") from error


class _Remote(io.RawIOBase):
    """An object as a file that can be read anywhere."""

    def __init__(self, place: Place) -> None:
        store = store_of(place)
        assert isinstance(store, Ranged)  # a zip inside a zip is refused before
        self._place, self._store, self._at = place, store, 0
        stat = self._store.stat(place)
        if stat is None:
            raise InputError(f"{place} does not exist")
        self._stat = stat

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._stat.size)[whence])
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._stat.size)
        if end <= self._at:
            return 0
        data = self._store.part(self._place, self._stat, self._at, end)
        buffer[: len(data)] = data
        self._at = end
        return len(data)
