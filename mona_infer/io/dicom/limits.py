"""Limits on the cost of reading a DICOM header, counted in steps, whatever the file claims.

pydicom takes one step for every eight bytes of zeros, and makes a Dataset for every empty item of a sequence: 64 MB of
either took 25 s and 113 s.  A real header needs a few thousand steps, and one with functional groups a few hundred per
frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_SET, BytesIO
from typing import BinaryIO, cast

from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.filereader import read_sequence_item

from mona_infer.errors import InputError

STEPS = 100_000  # reads for a header without frames; the longest classic ones need about 5,000
STEPS_A_FRAME = 1_000  # nibabel's philips_mprage.dcm.gz needs 263
BYTES_A_STEP = 4  # that file has 7.4, the smallest functional groups 6.8, empty items 2.7
BYTES_A_FRAME = 128  # with its position and pixels, however compressed, a frame takes at least this much of a file
VALUE = 1 << 16  # bytes of a value other than a sequence: those read here are all short texts and numbers
UNDEFINED = 0xFFFFFFFF  # a length that says "until the delimiter"
NUMBER_OF_FRAMES = 0x00280008
PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)  # as floats, doubles and integers


class Meter:
    """Counts the steps of reading one header, and stops where no real header would continue."""

    def __init__(self, name: str, size: int = 0, steps: int = STEPS) -> None:
        self.name, self._size, self._steps = name, size, steps
        self._limit, self._more, self._used, self._bytes = steps, 0, 0, 0
        self._endless: InputError | None = None

    def allow_frames(self, count: int) -> None:
        if count > 1 and count * BYTES_A_FRAME > self._size:
            raise InputError(
                f"{self.name}: NumberOfFrames is {count:,}, too many for a file of {self._size:,} bytes; "
                "copy or export it again"
            )
        self._more = STEPS_A_FRAME * count

    def step(self, count: int) -> None:
        """A read of `count` bytes."""
        self._used += 1
        self._bytes += min(count, 64)  # a long read, parsed later if at all, earns no extra steps
        if self._used > self._limit:
            self._limit = self._steps + min(self._more, self._bytes // BYTES_A_STEP)
            if self._used > self._limit:
                self._endless = InputError(
                    f"{self.name}: the header has more elements than any scanner writes; the file is damaged or "
                    "malicious, do not use it"
                )
                raise self._endless

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Restores our error around pydicom's readers, which replace any error inside a sequence with an OSError."""
        try:
            yield
        except OSError:
            if self._endless is not None:
                raise self._endless from None
            raise

    def unread(self, count: int) -> None:
        self._bytes -= min(count, 64)

    def short(self, tag: int, length: int) -> None:
        """Refuse a value that would be split into millions of numbers."""
        if VALUE < length < UNDEFINED:
            raise InputError(
                f"{self.name}: ({tag >> 16:04X},{tag & 0xFFFF:04X}) has {length:,} bytes instead of a short value; "
                "copy or export it again"
            )

    def items(self, ds: Dataset, keyword: str, most: int) -> list[Dataset]:
        """The first items of a sequence, at most `most`; pydicom would parse all of them, uncounted."""
        if keyword not in ds:
            return []
        raw = ds.get_item(keyword)
        if isinstance(raw, RawDataElement):
            data, found = BytesIO(raw.value or b""), []
            stream = cast(BinaryIO, Metered(data, self))
            while len(found) < most and data.tell() < len(raw.value or b""):
                with self.counting():
                    item = read_sequence_item(stream, raw.is_implicit_VR, raw.is_little_endian, "iso8859")
                if item is None:  # the delimiter
                    break
                found.append(item)
        else:
            found = list(raw.value)[:most]
        for item in found:
            for element in item.elements():
                if isinstance(element, RawDataElement) and element.VR != "SQ":
                    self.short(element.tag, element.length)
        return found


class Metered:
    """A stream that counts every read as a step; the values of the tags in `short` must be short."""

    def __init__(self, stream: BinaryIO, meter: Meter, short: frozenset[int] = frozenset()) -> None:
        self._read, self._seek, self._meter, self._short = stream.read, stream.seek, meter, short
        self.tell = stream.tell

    def read(self, size: int = -1) -> bytes:
        data = self._read(size)
        self._meter.step(len(data))
        return data

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        back = self.tell() - offset if whence == SEEK_SET else -offset
        if back > 0:
            self._meter.unread(back)  # pydicom looks ahead, which is not progress
        return self._seek(offset, whence)

    def stop(self, tag: int, vr: str | None, length: int) -> bool:
        """For pydicom's `stop_when`: stop before the pixels.  NumberOfFrames, on the way there, raises the limit."""
        if tag in self._short:
            self._meter.short(tag, length)
        if tag == NUMBER_OF_FRAMES and length <= 16:
            at = self.tell()
            text = self._read(length).strip(b" \0")
            self.seek(at)
            self._meter.allow_frames(int(text) if text.isdigit() else 0)
        return tag in PIXELS
