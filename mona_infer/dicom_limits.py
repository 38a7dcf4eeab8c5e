"""What reading a DICOM header may cost: so many steps, whatever the file says of itself.

pydicom takes one step for every eight bytes of zeros, and a Dataset for every empty item of a sequence: 64 MB of either
kept it busy for 25 s and 113 s.  A real header needs a few thousand steps, and one with functional groups a few
hundred for each frame.
"""

from __future__ import annotations

from io import BytesIO
from typing import BinaryIO, cast

from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.filereader import read_sequence

from mona_infer.errors import InputError

STEPS = 200_000  # reads of a header; the longest classic ones need about 5,000
STEPS_A_FRAME = 1_000  # Philips describes a frame with about 150 elements of two or three reads each
BYTES_A_FRAME = 64  # even a frame compressed to nothing takes this in the file, so a count beyond it is a lie
VALUE = 1 << 16  # bytes of a value that is no sequence: all that are read here are short texts and numbers
NUMBER_OF_FRAMES = 0x00280008
PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)  # as floats, doubles and integers


class Meter:
    """Counts the steps of one file's header, and ends them where no real header would go on."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.left, self._frames = name, STEPS, size // BYTES_A_FRAME

    def allow_frames(self, count: int) -> None:
        self.left += STEPS_A_FRAME * max(0, min(count, self._frames))

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InputError(
                f"{self.name}: its header does not end after {STEPS} elements, as no scanner writes it; do not use it"
            )

    def short(self, ds: Dataset) -> None:
        """Refuse a value that would be cut into millions of numbers."""
        for element in ds.elements():
            if isinstance(element, RawDataElement) and element.VR != "SQ" and element.length > VALUE:
                raise InputError(
                    f"{self.name}: {element.tag} holds {element.length:,} bytes where a short value belongs; "
                    "copy or export it again"
                )

    def items(self, ds: Dataset, keyword: str) -> list[Dataset]:
        """The items of a sequence, empty where there is none; pydicom parses it only now, outside of the file."""
        if keyword not in ds:
            return []
        raw = ds.get_item(keyword)
        if isinstance(raw, RawDataElement):
            data = raw.value or b""
            stream = cast(BinaryIO, Metered(BytesIO(data), self))
            found = read_sequence(stream, raw.is_implicit_VR, raw.is_little_endian, len(data), "iso8859")
        else:
            found = raw.value
        for item in found:
            self.short(item)
        return list(found)


class Metered:
    """A stream whose every read is a step."""

    def __init__(self, stream: BinaryIO, meter: Meter) -> None:
        self._read, self._meter = stream.read, meter
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        self._meter.step()
        return self._read(size)

    def stop(self, tag: int, vr: str | None, length: int) -> bool:
        """For pydicom's `stop_when`: before the pixels.  On the way, the number of frames raises what is allowed."""
        if tag == NUMBER_OF_FRAMES and length <= 16:
            at = self.tell()
            text = self._read(length).strip(b" \0")
            self.seek(at)
            self._meter.allow_frames(int(text) if text.isdigit() else 0)
        return tag in PIXELS
