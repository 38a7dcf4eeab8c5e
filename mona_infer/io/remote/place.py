"""A place: `s3://bucket/folder/scan.nii.gz`, or `zip://folder/scan.nii.gz::s3://bucket/scans.zip`.

fsspec's own chains are not used: it would cut the name of an object at any `::` and follow what comes after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mona_infer.errors import InputError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters or more: C:// is a disk
LONGEST_NAME = 255 - len(".01234567.")  # bytes: most disks hold 255, of which a temporary name takes some


@dataclass(frozen=True)
class Place:
    scheme: str
    path: str  # bucket and key, or the name inside a zip
    outer: str = ""  # the zip, as a place or a local path

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}" + (f"::{self.outer}" if self.outer else "")

    def under(self, name: str) -> Place:
        return Place(self.scheme, f"{self.path.rstrip('/')}/{name}".lstrip("/"), self.outer)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        return Place(self.scheme, self.path.rstrip("/").rpartition("/")[0], self.outer)


def is_remote(place: str) -> bool:
    return SCHEME.match(place) is not None


def parse(text: str) -> Place:
    match = SCHEME.match(text)
    if match is None:
        raise InputError(f"{text} is not a remote place, such as s3://bucket/scan.nii.gz")
    scheme, path = match[1].lower(), text[match.end() :]
    if scheme != "zip":
        return Place(scheme, path)
    inside, found, outer = path.rpartition("::")  # the last: names inside may hold anything
    if not found or not outer:
        raise InputError(f"{text}: expected zip://NAME::ZIP, such as zip://scan.nii.gz::s3://bucket/scans.zip")
    if outer.lower().startswith("zip://"):
        raise InputError(f"{text} is a zip inside a zip, which mona does not read; unpack the outer one")
    return Place(scheme, inside.lstrip("/"), outer)


def local_name(place: Place) -> str:
    """What the file is called here; an object may have a name that would lead out of its folder."""
    name = place.name
    refuse_wandering(str(place), place.path)
    if not name or len(name.encode()) > LONGEST_NAME or any(ord(c) < 32 for c in name):
        raise InputError(f"{str(place)!r} has a name that no file can have; rename the object")
    return name


def refuse_wandering(place: str, path: str) -> None:
    """No part of a name may be `..` or hold a backslash, which is a separator on other systems."""
    if any(part in (".", "..") for part in path.split("/")) or "\\" in path:
        raise InputError(
            f"{place} has a name with '..', '.' or a backslash, which is never followed; rename the object"
        )
