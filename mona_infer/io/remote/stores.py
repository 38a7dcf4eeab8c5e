"""What mona asks of a store, and the stores of fsspec that are not S3."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mona_infer.errors import InputError, MissingPart
from mona_infer.io.remote.place import Place
from mona_infer.io.remote.retry import Incomplete, is_absent, patiently

PIECE = 16 << 20  # bytes of one request: what is read again after a failure
# fsspec's word for a store -> the package that speaks it
PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "adl": "adlfs"}
PACKAGES |= {"sftp": "paramiko", "ssh": "paramiko", "http": "aiohttp", "https": "aiohttp", "smb": "smbprotocol"}
WHOLE_OR_NOT = {"gs", "gcs", "az", "abfs", "abfss", "adl"}  # an object appears when its upload is complete


@dataclass(frozen=True)
class Stat:
    size: int
    version: str = ""  # changes when the object does
    md5: str = ""  # where the store tells it


class Store(Protocol):
    def stat(self, place: Place) -> Stat | None:
        """None if there is no such object."""

    def pieces(self, place: Place, stat: Stat) -> Iterator[bytes]:
        """The object from its beginning; every request is tried again on its own."""

    def names(self, folder: Place) -> Iterator[str]:
        """All objects below a folder, by their names in it."""

    def write(self, path: Path, place: Place) -> None:
        """Whole or not at all."""


def store_of(place: Place) -> Store:
    if place.scheme in ("s3", "s3a"):
        from mona_infer.io.remote.s3 import connected

        return connected(os.getpid())
    if place.scheme == "zip":
        from mona_infer.io.remote.zipped import Zipped

        return Zipped()
    return Other(place.scheme)


class Ranged:
    """A store that is asked for parts of an object."""

    def part(self, place: Place, stat: Stat, start: int, end: int) -> bytes:
        raise NotImplementedError

    def stat(self, place: Place) -> Stat | None:
        raise NotImplementedError

    def pieces(self, place: Place, stat: Stat) -> Iterator[bytes]:
        for start in range(0, max(stat.size, 1), PIECE):  # an empty object is one empty piece
            yield self.part(place, stat, start, min(start + PIECE, stat.size))

    def compare(self, path: Path, place: Place) -> None:
        """Read back what was written, where the store tells no checksum."""
        stat = self.stat(place)
        same = stat is not None and stat.size == path.stat().st_size
        if stat is not None and same:
            with path.open("rb") as file:
                same = all(file.read(len(data)) == data for data in self.pieces(place, stat))
        if not same:
            raise InputError(f"{place} was written, but what the store holds is not what was sent; write it again")


class Other(Ranged):
    """Any store of fsspec: gs://, abfs://, sftp://, https:// (to read), memory:// (for tests)."""

    def __init__(self, scheme: str) -> None:
        import fsspec

        try:
            self.fs: Any = fsspec.filesystem(scheme, use_listings_cache=False)
        except ImportError as error:
            from mona_infer.system.optional_parts import install_command

            package = PACKAGES.get(scheme)
            run = install_command(package) if package else f"look for {scheme} in the documentation of fsspec"
            raise MissingPart(
                f"{scheme}:// needs {package or 'a package'} that is not installed; run: {run}"
            ) from error
        except ValueError:
            raise InputError(
                f"{scheme}:// is not a store that fsspec knows; use s3://, gs://, abfs:// or sftp://"
            ) from None

    def _path(self, place: Place) -> str:
        return str(self.fs._strip_protocol(str(place)))

    def stat(self, place: Place) -> Stat | None:
        def ask() -> Stat | None:
            try:
                found = self.fs.info(self._path(place))
            except Exception as error:
                if is_absent(error):
                    return None
                raise
            if found["type"] == "directory":
                return None
            return Stat(int(found["size"] or 0), str(found.get("etag") or found.get("mtime") or ""))

        return patiently(ask, "read", place)

    def part(self, place: Place, stat: Stat, start: int, end: int) -> bytes:
        def get() -> bytes:
            data: bytes = self.fs.cat_file(self._path(place), start=start, end=end)
            if len(data) != end - start:
                raise Incomplete(f"{len(data)} of {end - start} bytes arrived")
            return data

        return patiently(get, "read", place)

    def names(self, folder: Place) -> Iterator[str]:
        base = self._path(folder).rstrip("/") + "/"
        for path in sorted(patiently(lambda: self.fs.find(base), "listed", folder)):
            if path.startswith(base):
                yield path.removeprefix(base)

    def write(self, path: Path, place: Place) -> None:
        final = self._path(place)
        name = final.rpartition("/")[2]
        aside = final.removesuffix(name) + f".{secrets.token_hex(4)}.{name}"

        def put() -> None:
            self.fs.makedirs(final.rpartition("/")[0], exist_ok=True)
            if place.scheme in WHOLE_OR_NOT:
                self.fs.put_file(str(path), final)
                return
            try:
                self.fs.put_file(str(path), aside)
                if self.fs.size(aside) != path.stat().st_size:
                    raise Incomplete(f"{self.fs.size(aside)} of {path.stat().st_size} bytes were stored")
                self.fs.mv(aside, final)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.fs.rm_file(aside)
                raise

        patiently(put, "written", place)
        self.compare(path, place)
