"""Uploaded scans, each in a folder of its own: the file as it came, what is known of it, its mask."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mona_infer.errors import InputError
from mona_infer.io.formats import SEG
from mona_infer.io.nifti import write_nifti
from mona_infer.io.read import read_volume
from mona_infer.serving.names import fingerprint, members, shown_name, without_paths
from mona_infer.serving.received import header_of, spacing_of, suffix_of
from mona_infer.serving.state import ID, State, new_id, read_json, write_json
from mona_infer.system.memory_budget import size_in_words
from mona_infer.volume import Volume

ABOUT, IMAGE, MASK, LABEL = "scan.json", "image.nii.gz", "mask.nii.gz", "label.nii.gz"
CHUNK = 1 << 20
SPARE = 64 << 20  # bytes that stay free on the disk
STORAGE = 20 * 10**9  # bytes that all scans may take
FRESH = 3600.0  # seconds for which nobody need fear for a scan that was just sent or segmented


class NoRoom(InputError):
    """A scan that the server cannot keep as well."""


@dataclass
class Scan:
    id: str
    name: str  # made by the server, unless names are kept
    file: str
    shape: list[int]
    spacing: list[float]
    created: float
    dicom: bool = False
    expires: float | None = None  # a MONAI Label session
    called: str | None = None  # fingerprint of what a MONAI Label client calls it
    series: str | None = None  # fingerprint of a DICOM series' UID, by which OHIF asks
    segmented: dict[str, Any] = field(default_factory=dict)  # model and report of the mask


class Scans:
    def __init__(
        self,
        state: State,
        *,
        keep_names: bool = False,
        storage: int = STORAGE,
        wanted: Callable[[], set[str]] = set,
    ) -> None:
        """`storage` is how many bytes the scans may take in all; `wanted` gives the ids that jobs still need."""
        self._state, self._keep_names = state, keep_names
        self._storage, self._wanted, self._coming = storage, wanted, 0
        self._lock = threading.RLock()
        self._scans: dict[str, Scan] = {}
        for folder in sorted(state.scans.iterdir()):
            found = read_json(folder / ABOUT) if ID.fullmatch(folder.name) else None
            if found is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            self._scans[folder.name] = Scan(**found)
        self._count = len(self._scans)
        self.folder = state.folder
        self.remove_expired()

    def __iter__(self) -> Iterator[Scan]:
        return iter(sorted(self._scans.values(), key=lambda scan: scan.created))

    def get(self, id: str) -> Scan | None:
        """By its id or by what its client calls it: a lookup, never a path."""
        scan = self._scans.get(id)
        if scan is None and id:
            print_of = fingerprint(id)
            scan = next((s for s in reversed(list(self)) if print_of in (s.called, s.series)), None)
        return None if scan is not None and scan.expires is not None and scan.expires < time.time() else scan

    def path(self, scan: Scan, name: str | None = None) -> Path:
        return self._state.scans / scan.id / (name or scan.file)

    def add(
        self, stream: BinaryIO, name: str | None, *, called: str | None = None, expires: float | None = None
    ) -> Scan:
        """Keep a scan that was sent; InputError, and nothing is kept, if it cannot be read."""
        self.remove_expired()
        with self._room_for(stream), self._state.receiving() as place:
            received = place / "received"
            copy(stream, received)
            path = place / f"scan{suffix_of(received)}"
            received.rename(path)
            scan = self._described(path, name)
            scan.called, scan.expires = called and fingerprint(called), expires
            write_json(place / ABOUT, asdict(scan))
            place.rename(self._state.scans / scan.id)
        with self._lock:
            self._scans[scan.id] = scan
        return scan

    @contextlib.contextmanager
    def _room_for(self, stream: BinaryIO) -> Iterator[None]:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        with self._lock:
            self._make_room(size)
            self._coming += size
        try:
            yield
        finally:
            with self._lock:
                self._coming -= size

    def _make_room(self, size: int) -> None:
        """Remove scans, the oldest first, until `size` bytes more fit: none that is fresh, labelled or wanted."""
        taken = {scan.id: self._size(scan) for scan in self}
        used, gone = sum(taken.values()) + self._coming, []
        if used + size <= self._storage:
            return
        wanted = self._wanted()
        for scan in self:
            if scan.id not in wanted and self._is_old(scan) and not self.path(scan, LABEL).exists():
                gone.append(scan)
                used -= taken[scan.id]
                if used + size <= self._storage:
                    break
        else:
            raise NoRoom(
                f"the scans on the server take {size_in_words(sum(taken.values()))}, and it keeps at most "
                f"{size_in_words(self._storage)}; delete scans that are no longer needed, or start `mona serve` with a "
                "larger --storage"
            )
        for scan in gone:
            self.remove(scan)

    def _size(self, scan: Scan) -> int:
        """With what was made of it."""
        with contextlib.suppress(FileNotFoundError):
            return sum(entry.stat().st_size for entry in os.scandir(self._state.scans / scan.id))
        return 0

    def _is_old(self, scan: Scan) -> bool:
        mask = self.path(scan, MASK)
        last = max(scan.created, mask.stat().st_mtime if mask.exists() else 0.0)
        return time.time() - last > FRESH

    def _described(self, path: Path, name: str | None) -> Scan:
        with self._lock:
            self._count += 1
            number = self._count
        shown = shown_name(name) if self._keep_names else f"scan {number}"
        dicom = path.suffix in (SEG, ".zip")
        try:
            if not dicom:
                header = header_of(path)
                shape, spacing, series = list(header.shape), spacing_of(header), None
            else:
                volume = read_volume(path, frame=0, origin=True)
                if volume.sparse:
                    raise InputError("the file is a DICOM Segmentation, not a scan; give the scan it was made from")
                series = next((str(h.get("SeriesInstanceUID") or "") for h, _ in volume.origin), "")
                shape = [*volume.shape, *([volume.frames] if volume.frames > 1 else [])]
                spacing = [round(s, 6) for s in volume.spacing]
                write_nifti(path.with_name(IMAGE), volume)  # browsers do not read DICOM
        except InputError as error:
            raise InputError(without_paths(str(error), self.stands_for(path, shown))) from None
        named = series and fingerprint(series)
        return Scan(new_id(), shown, path.name, shape, spacing, time.time(), dicom=dicom, series=named or None)

    def stands_for(self, path: Path, shown: str) -> dict[str, str]:
        """What a message may name, and what it should say instead."""
        inside = members(path) if path.suffix == ".zip" and not self._keep_names else {}
        return {str(path): shown, path.name: shown, str(path.parent): shown} | inside

    def image(self, scan: Scan) -> Path:
        """The scan as .nii.gz, made when it is first asked for."""
        if scan.file == "scan.nii.gz":
            return self.path(scan)
        path = self.path(scan, IMAGE)
        if not path.exists():
            write_nifti(path, self.volume(scan))
        return path

    def volume(self, scan: Scan, *, origin: bool = False) -> Volume:
        """The scan; of several frames the first."""
        return read_volume(self.path(scan), frame=0 if len(scan.shape) > 3 else None, origin=origin)

    def update(self, scan: Scan) -> None:
        with self._lock:
            if scan.id in self._scans:
                write_json(self.path(scan, ABOUT), asdict(scan))

    def remove(self, scan: Scan) -> None:
        with self._lock:
            self._scans.pop(scan.id, None)
        shutil.rmtree(self._state.scans / scan.id, ignore_errors=True)

    def remove_expired(self) -> None:
        for scan in list(self):
            if scan.expires is not None and scan.expires < time.time():
                self.remove(scan)


def copy(stream: BinaryIO, path: Path) -> None:
    """What was received, to the disk, unless that would fill it."""
    with path.open("wb") as file:
        while data := stream.read(CHUNK):
            if shutil.disk_usage(path.parent).free < SPARE + len(data):
                raise NoRoom("the server's disk is full; delete scans that are no longer needed")
            file.write(data)
