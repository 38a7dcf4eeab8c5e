"""Opening DICOM files in a folder, a zip or a single file without trusting names, sizes or lengths.

No zip member's name ever becomes a path, and nothing over the budget is unpacked.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from pydicom.filereader import read_dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian

from mona_infer.errors import InputError, MonaError
from mona_infer.io.decompression_bombs import refuse_bomb
from mona_infer.io.dicom.limits import Meter, Metered
from mona_infer.io.dicom.slice import printable
from mona_infer.system.memory_budget import size_in_words

CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    name: str  # for messages only
    load: Callable[[], BinaryIO]
    folder: str = ""  # on disk or in the zip: tells which files belong together


@contextmanager
def as_input_error(name: str) -> Iterator[None]:
    """Damaged files make pydicom, zipfile and codecs raise a dozen unrelated types: make them one InputError."""
    try:
        yield
    except MonaError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{name} cannot be read ({error.strerror}); check the file and its permissions") from error
        reason = printable(" ".join(str(error).split()))[:200] or type(error).__name__
        raise InputError(f"{name} is damaged or not valid DICOM ({reason}); copy or export it again") from error


@contextmanager
def files_at(path: Path, budget: int) -> Iterator[list[File]]:
    """Every file that could hold an image."""
    name = printable(path)
    if path.is_dir():
        yield [File(printable(file), _loader(file), str(file.parent)) for file in _walk(path)]
        return
    if not path.is_file():
        raise InputError(f"{name} does not exist; give a DICOM folder, a zip of one, or a DICOM file")
    with as_input_error(name), path.open("rb") as stream:
        # A DICOM preamble may hold anything (PS3.10 7.1), even a zip: the prefix decides.
        is_dicom = stream.read(132)[128:] == b"DICM"
    if path.name.upper() == "DICOMDIR":
        raise InputError(f"{name} is an index without images; give the folder it is in")
    if is_dicom or not (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)):
        if not is_dicom:
            raise InputError(f"{name} is not a DICOM file (no DICM prefix); give a DICOM folder, zip or file")
        yield [File(name, _loader(path))]
        return
    with as_input_error(name):
        archive = zipfile.ZipFile(path)
    with archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if any(member.flag_bits & 1 for member in members):
            raise InputError(f"{name} is encrypted; unpack it with its password and give the folder")
        total = sum(member.file_size for member in members)
        if total > budget:
            raise InputError(
                f"{name} unpacks to {size_in_words(total)}, more than the memory budget of {size_in_words(budget)}; "
                "unpack it and give the folder of one series"
            )
        refuse_bomb(name, path.stat().st_size, total, "unpack it and give the folder")
        yield [
            File(
                f"{name}: {printable(member.filename)}",
                partial(_unpack, archive, member),
                member.filename.rpartition("/")[0],
            )
            for member in sorted(members, key=lambda member: member.filename)
            if not _index_or_shadow(member.filename.rpartition("/")[2])
        ]


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{printable(error.filename)} cannot be listed ({error.strerror}); check its permissions")

    for root, folders, names in os.walk(
        folder, onerror=refuse
    ):  # does not follow links to folders, so there are no loops
        folders.sort()
        for file in (Path(root, name) for name in sorted(names) if not _index_or_shadow(name)):
            if file.is_file() or file.is_symlink():  # not pipes or devices, which could block forever
                yield file


class _Bounded(BufferedReader):
    """Never reads more than the file has: a damaged length field must not allocate gigabytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > 1 << 16:
            size = min(size, max(0, os.fstat(self.fileno()).st_size - self.tell()))
        return super().read(size)


def _loader(file: Path) -> Callable[[], BinaryIO]:
    """A broken link reads as an empty file."""
    return (lambda: _Bounded(file.open("rb", buffering=0))) if file.is_file() else (lambda: BytesIO())


def _index_or_shadow(name: str) -> bool:
    """DICOMDIR only lists images; `._x` is a file that macOS leaves next to x."""
    return name.upper() == "DICOMDIR" or name.startswith("._")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """A member in memory, without a second copy; only its first bytes if it is not DICOM."""
    with archive.open(member) as stream:
        data = stream.read(CHUNK)
        if data[128:132] != b"DICM":
            return BytesIO(data[:132])
        unpacked, size = BytesIO(data), len(data)  # shares the bytes until something is written
        while data := stream.read(CHUNK):
            unpacked.seek(size)
            size += unpacked.write(data)
    if size != member.file_size:
        raise InputError(
            f"{printable(archive.filename)}: {printable(member.filename)} does not have the size that the zip "
            "declares; zip it again"
        )
    unpacked.seek(0)
    return unpacked


@contextmanager
def opened(file: File, budget: int) -> Iterator[BinaryIO | None]:
    """The file, at its first byte; None if it is not DICOM.

    A deflated data set (PS3.5 A.5) is inflated here, within the budget, because pydicom would inflate any bomb.  It is
    then read as explicit little endian.
    """
    with file.load() as stream:
        if stream.read(132)[128:] != b"DICM":
            yield None
            return
        meter = Meter(file.name)

        def after_meta(tag: int, vr: str | None, length: int) -> bool:
            if tag >> 16 == 2:
                meter.short(tag, length)
            return tag >> 16 != 2

        meta = read_dataset(cast(BinaryIO, Metered(stream, meter)), False, True, stop_when=after_meta)
        if meta.get("TransferSyntaxUID") != DeflatedExplicitVRLittleEndian:
            stream.seek(0)
            yield stream
            return
        end = stream.tell()
        packed = stream.seek(0, os.SEEK_END) - end
        stream.seek(0)
        deflated, plain = DeflatedExplicitVRLittleEndian.encode(), ExplicitVRLittleEndian.encode()
        inflated = BytesIO()
        inflated.write(stream.read(end).replace(deflated, plain.ljust(len(deflated), b"\0")))
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        while not unpacker.eof and (data := unpacker.unconsumed_tail or stream.read(CHUNK)):
            inflated.write(unpacker.decompress(data, CHUNK))
            if inflated.tell() > budget:
                raise InputError(
                    f"{file.name} unpacks to more than the budget of {size_in_words(budget)}; do not use it"
                )
            refuse_bomb(file.name, packed, inflated.tell(), "unpack it and give the folder")
        inflated.seek(0)
        yield inflated
