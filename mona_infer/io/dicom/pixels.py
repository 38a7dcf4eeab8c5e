"""The pixels of DICOM images: checking that they are there and can be decoded, and reading them into a volume."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.utils import as_pixel_options, iter_pixels
from pydicom.uid import UID, RLELossless

from mona_infer.errors import InputError, MissingPart
from mona_infer.io.dicom.codec_process import CodecProcess
from mona_infer.io.dicom.header import Header
from mona_infer.io.dicom.slice import Slice, printable
from mona_infer.io.dicom.slice_order import Stack
from mona_infer.io.dicom.source import as_input_error, opened
from mona_infer.system.memory_budget import TooLarge
from mona_infer.system.optional_parts import install_command, requirements

PIXEL_DATA = 0x7FE00010
CHUNK = 1 << 20


def _syntax(header: Header) -> UID:
    return UID(header.tags.file_meta.get("TransferSyntaxUID", ""))


def check_pixels(header: Header, image: Slice, budget: int) -> int:
    """Refuse pixels that are missing or cannot be decoded; returns how many bytes of padding follow them."""
    name = header.file.name
    if header.pixel_tag != PIXEL_DATA:
        raise InputError(f"{name} has no integer pixel data (7FE0,0010); copy or export it again")
    syntax = _syntax(header)
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise InputError(
            f"{name}: transfer syntax {printable(syntax.name) or '(none given)'} is not supported; "
            "export it uncompressed"
        ) from None
    if not decoder.is_available:
        jpeg2000, jpegls = "JPEG 2000" in syntax.name, "JPEG-LS" in syntax.name
        package = "pylibjpeg-openjpeg" if jpeg2000 else "pyjpegls" if jpegls else "python-gdcm"
        install = install_command(*requirements("dicom").values())
        raise MissingPart(f"{name}: the pixels are compressed as {syntax.name}, which needs {package}; run: {install}")
    if decoder.is_encapsulated:
        return 0
    row = image.size[1] * image.dtype.itemsize
    expected = image.size[0] * row * header.frames
    # PS3.5 8.1.1 allows one byte of padding; some writers add more.  Only zeros count as padding: if an extra row or
    # more has other values, Rows, Columns or BitsAllocated is wrong.
    present = min(header.pixel_length, header.pixel_bytes)
    spare = header.pixel_length - expected
    if present < expected or (spare >= max(row, 2) and not _zeros(header, expected, present, budget)):
        raise InputError(
            f"{name}: {header.frames} frame(s) of {image.size[0]}x{image.size[1]} need {expected} bytes of pixels, "
            f"found {present}; copy or export it again"
        )
    return spare if spare >= max(row, 2) else 0


def _zeros(header: Header, start: int, end: int, budget: int) -> bool:
    with opened(header.file, budget) as stream:
        assert stream is not None
        stream.seek(header.pixel_start + start)
        return not any(any(stream.read(min(CHUNK, end - at))) for at in range(start, end, CHUNK))


def pixel_digest(header: Header, budget: int) -> bytes:
    """A hash of the stored pixels, to tell whether two files have the same."""
    digest = sha256()
    with as_input_error(header.file.name), opened(header.file, budget) as stream:
        if stream is not None:
            stream.seek(header.pixel_start)
            left = min(header.pixel_length, header.pixel_bytes)
            while left > 0 and (data := stream.read(min(CHUNK, left))):
                digest.update(data)
                left -= len(data)
    return digest.digest()


def _native_frames(stream: BinaryIO, indices: Sequence[int]) -> Generator[NDArray[Any], None, None]:
    return cast(Generator[NDArray[Any], None, None], iter_pixels(stream, indices=indices, raw=True))


def _decoded_frames(
    stream: BinaryIO, header: Header, wanted: Mapping[int, Sequence[tuple[int, Slice]]], codecs: CodecProcess
) -> Generator[NDArray[Any], None, None]:
    """A codec allocates what its stream declares, whatever the tags say: it gets the stream only if they agree."""
    tags, syntax = header.tags, _syntax(header)
    size = int(tags.Rows), int(tags.Columns)
    options = as_pixel_options(tags)
    offsets = options.pop("extended_offsets", None)
    options = {key: value if isinstance(value, str) else int(value) for key, value in options.items()}
    options |= {"number_of_frames": 1, "pixel_keyword": "PixelData"}
    for frame, images in wanted.items():
        name = images[0][1].name
        stream.seek(header.pixel_start)
        code = get_frame(stream, frame, number_of_frames=header.frames, extended_offsets=offsets)
        if syntax != RLELossless and (found := _codestream_size(code)) != (*size, 1):  # RLE has no size of its own
            raise InputError(
                f"{name}: the compressed image has (rows, columns, colours) {found} but the tags say "
                f"{(*size, 1)}; export it again"
            )
        yield codecs.decode(code, syntax, options, size, name)


def _codestream_size(code: bytes) -> tuple[int, int, int]:
    """Rows, columns and colours in the frame header of JPEG, JPEG-LS or JPEG 2000; zeros if there is none."""
    if not code.startswith(b"\xff\xd8"):
        at = code.index(b"\xff\x4f\xff\x51")  # SOC, SIZ: ISO/IEC 15444-1 A.5.1
        x1, y1, x0, y0, _, _, _, _, colours = struct.unpack_from(">8LH", code, at + 8)
        return y1 - y0, x1 - x0, colours
    at = 2
    while code[at] == 0xFF:  # segments up to SOFn: ISO/IEC 10918-1 B.2.2, and 14495-1 for JPEG-LS (F7)
        marker, length = struct.unpack_from(">BH", code, at + 1)
        if marker == 0xF7 or (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)):
            rows, columns, colours = struct.unpack_from(">HHB", code, at + 5)
            return rows, columns, colours
        at += 1 if marker == 0xFF else 2 + length  # FF may fill
    return 0, 0, 0


def read_voxels(
    stack: Stack, headers: Sequence[Header], path: Path, budget: int, beside: int, codecs: CodecProcess
) -> tuple[NDArray[Any], float, float]:
    """The voxels of the stack (i along a row, j down a column, k slice), read one slice at a time."""
    first = stack.slices[0]
    rows, columns = first.size
    one_rescale = len({image.rescale for image in stack.slices}) == 1  # PET and some MR rescale slice by slice
    dtype = first.dtype if one_rescale else np.dtype(np.float32)
    shape = (columns, rows, len(stack.slices))
    need = columns * rows * len(stack.slices) * (dtype.itemsize + beside)
    if need > budget:
        what = f"{printable(path)} ({columns}x{rows}x{len(stack.slices)} voxels)"
        raise TooLarge(what, need, budget, "use a machine with more memory, or a smaller series")
    voxels = np.empty(shape, dtype, order="F")
    by_file: dict[int, dict[int, list[tuple[int, Slice]]]] = defaultdict(lambda: defaultdict(list))
    for k, image in enumerate(stack.slices):
        by_file[image.file][image.frame].append((k, image))  # the tiles of a mosaic share a frame
    for at, wanted in by_file.items():
        file, compressed = headers[at].file, _syntax(headers[at]).is_encapsulated
        with as_input_error(file.name), opened(file, budget) as stream:
            if stream is None:
                raise InputError(f"{file.name} changed while it was being read; try again")
            decoded = (
                _decoded_frames(stream, headers[at], wanted, codecs)
                if compressed
                else _native_frames(stream, list(wanted))
            )
            # Close it before the stream, because the generator rewinds the stream when it ends.
            with closing(decoded) as frames:
                for images, frame in zip(wanted.values(), frames, strict=True):
                    for k, image in images:
                        top, left = image.tile or (0, 0)
                        pixels = frame[top : top + rows, left : left + columns]
                        slope, intercept = image.rescale
                        voxels[:, :, k] = pixels.T if one_rescale else pixels.T * slope + intercept
    return (voxels, *first.rescale) if one_rescale else (voxels, 1.0, 0.0)
