"""Where DICOM bytes come from: a folder, a zip or one file, opened without trusting names, sizes or lengths.

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
from mona_infer.io.dicom.slice import shown
from mona_infer.system.memory_budget import size_in_words

CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    name: str  # for messages only
    load: Callable[[], BinaryIO]
    folder: str = ""  # that it lies in, on disk or in the zip: to tell which files belong together


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Damaged bytes make pydicom, zipfile and the codecs raise a dozen unrelated types: here they become one."""
    try:
        yield
    except MonaError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{name}: cannot be read ({error.strerror}); check the file and its rights") from error
        reason = shown(" ".join(str(error).split()))[:200] or type(error).__name__
        raise InputError(f"{name}: is damaged or no valid DICOM ({reason}); copy or export it again") from error


@contextmanager
def files_at(path: Path, budget: int) -> Iterator[list[File]]:
    """Every file that could hold an image."""
    name = shown(path)
    if path.is_dir():
        yield [File(shown(file), _loader(file), str(file.parent)) for file in _walk(path)]
        return
    if not path.is_file():
        raise InputError(f"{name}: no such file or folder; give a DICOM folder, a zip of one, or a DICOM file")
    with one_sentence(name), path.open("rb") as stream:
        # A DICOM preamble may hold anything (PS3.10 7.1), a zip included: the prefix decides.
        is_dicom = stream.read(132)[128:] == b"DICM"
    if path.name.upper() == "DICOMDIR":
        raise InputError(f"{name}: is an index without images; give the folder it lies in")
    if is_dicom or not (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)):
        if not is_dicom:
            raise InputError(f"{name}: is not a DICOM file (no DICM prefix); give a DICOM folder, zip or file")
        yield [File(name, _loader(path))]
        return
    with one_sentence(name):
        archive = zipfile.ZipFile(path)
    with archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if any(member.flag_bits & 1 for member in members):
            raise InputError(f"{name}: is encrypted; unpack it with its password and give the folder")
        total = sum(member.file_size for member in members)
        if total > budget:
            raise InputError(
                f"{name}: unpacks to {size_in_words(total)}, more than the memory budget of {size_in_words(budget)}; "
                "unpack it and give the folder of one series"
            )
        refuse_bomb(name, path.stat().st_size, total, "unpack it and give the folder")
        yield [
            File(
                f"{name}: {shown(member.filename)}",
                partial(_unpack, archive, member),
                member.filename.rpartition("/")[0],
            )
            for member in sorted(members, key=lambda member: member.filename)
            if not _index_or_shadow(member.filename.rpartition("/")[2])
        ]


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{shown(error.filename)}: cannot be listed ({error.strerror}); check its permissions")

    for root, folders, names in os.walk(folder, onerror=refuse):  # does not follow links to folders: no loops
        folders.sort()
        for file in (Path(root, name) for name in sorted(names) if not _index_or_shadow(name)):
            if file.is_file() or file.is_symlink():  # neither pipes nor devices, which could block for ever
                yield file


class _Bounded(BufferedReader):
    """Asks for no more than is there: a damaged length field must not make room for gigabytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > 1 << 16:
            size = min(size, max(0, os.fstat(self.fileno()).st_size - self.tell()))
        return super().read(size)


def _loader(file: Path) -> Callable[[], BinaryIO]:
    """A link to nowhere reads as an empty file."""
    return (lambda: _Bounded(file.open("rb", buffering=0))) if file.is_file() else (lambda: BytesIO())


def _index_or_shadow(name: str) -> bool:
    """DICOMDIR only points at images; `._x` is what macOS leaves beside x."""
    return name.upper() == "DICOMDIR" or name.startswith("._")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> BinaryIO:
    """A member in memory, once: only its first bytes where they are not DICOM."""
    with archive.open(member) as stream:
        data = stream.read(CHUNK)
        if data[128:132] != b"DICM":
            return BytesIO(data[:132])
        unpacked, size = BytesIO(data), len(data)  # shares the bytes as long as nothing is written
        while data := stream.read(CHUNK):
            unpacked.seek(size)
            size += unpacked.write(data)
    if size != member.file_size:
        raise InputError(
            f"{shown(archive.filename)}: {shown(member.filename)} is not the size the zip says; zip it again"
        )
    unpacked.seek(0)
    return unpacked


@contextmanager
def opened(file: File, budget: int) -> Iterator[BinaryIO | None]:
    """The file at its first byte, or None where it is not DICOM.

    A deflated data set (PS3.5 A.5) is inflated here, at most to the budget, since pydicom would inflate any bomb;
    it goes on as the explicit little endian it then is.
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
                raise InputError(f"{file.name}: inflates beyond the budget of {size_in_words(budget)}; do not use it")
            refuse_bomb(file.name, packed, inflated.tell(), "unpack it and give the folder")
        inflated.seek(0)
        yield inflated
