"""Pixel types, rescaling, transfer syntaxes and codecs, against pydicom's `pixel_array`."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_enhanced, write_series
from helpers.dicom_reading import AXIAL, read, refused, scan
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.encoders.base import get_encoder
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from mona_infer.errors import MissingPart
from mona_infer.io.dicom.codec_process import CodecProcess

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int8, np.uint8, np.int32, np.uint32])
def test_stored_types_are_kept(tmp_path, dtype):
    voxels = scan((5, 3, 4), dtype)  # an odd number of bytes a slice, which PS3.5 8.1.1 pads
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=0.5, RescaleIntercept=-1024)
    volume = read(tmp_path)
    assert volume.voxels.dtype == dtype
    assert (volume.slope, volume.intercept) == (0.5, -1024)
    np.testing.assert_array_equal(volume.voxels, voxels)


def test_rescale_that_differs_by_slice_is_applied(tmp_path):
    voxels = scan()
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=lambda k: 0.25 * (k + 1), RescaleIntercept=lambda k: -k)
    volume = read(tmp_path)
    assert volume.voxels.dtype == np.float32
    assert (volume.slope, volume.intercept) == (1, 0)
    np.testing.assert_array_equal(volume.voxels, voxels * (0.25 * np.arange(1, 5)) - np.arange(4))


def test_bits_above_bits_stored_are_not_values(tmp_path):
    voxels = scan(dtype=np.uint16)
    write_series(tmp_path, voxels, AXIAL, BitsStored=12, HighBit=11)
    np.testing.assert_array_equal(read(tmp_path).voxels, voxels & 0xFFF)


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian])
@pytest.mark.parametrize("dtype", [np.int16, np.uint8])
def test_uncompressed_syntaxes(tmp_path, syntax, dtype):
    voxels = scan((5, 3, 4), dtype)
    files = write_series(tmp_path, voxels, AXIAL, syntax=syntax)
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, voxels)
    assert volume.voxels.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(volume.voxels[:, :, 1].T, pydicom.dcmread(files[1]).pixel_array)


def needs_codec(syntax):
    if not (get_decoder(syntax).is_available and get_encoder(syntax).is_available):
        pytest.skip(f"no codec for {syntax.name}")


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless], ids=lambda uid: uid.keyword)
@pytest.mark.parametrize("dtype", [np.int16, np.uint8])
def test_compressed_syntaxes(tmp_path, syntax, dtype):
    needs_codec(syntax)
    voxels = scan((96, 72, 3), dtype)  # JPEG 2000 needs room for its resolutions
    write_series(tmp_path / "classic", voxels, AXIAL, compress=syntax)
    write_enhanced(tmp_path / "enhanced.dcm", voxels, AXIAL, compress=syntax)
    for path in (tmp_path / "classic", tmp_path / "enhanced.dcm"):
        volume = read(path)
        np.testing.assert_array_equal(volume.voxels, voxels)
        assert volume.voxels.dtype == dtype


@pytest.mark.parametrize("syntax", [RLELossless, JPEGLSLossless, JPEG2000Lossless], ids=lambda uid: uid.keyword)
def test_a_corrupt_compressed_stream_is_refused(tmp_path, syntax):
    needs_codec(syntax)
    files = write_series(tmp_path, scan((96, 72, 3)), AXIAL, compress=syntax)
    data = bytearray(files[1].read_bytes())
    data[-1500:-1000] = bytes(500)
    files[1].write_bytes(data[:-900])
    refused(tmp_path, files[1], "export it again")


@pytest.mark.parametrize(
    ("syntax", "marker", "size"),
    [(JPEGLSLossless, b"\xff\xf7", (5, ">HH")), (JPEG2000Lossless, b"\xff\x4f\xff\x51", (8, ">LL"))],
    ids=["JPEG-LS", "JPEG 2000"],
)
def test_a_codestream_larger_than_its_tags_never_reaches_a_codec(tmp_path, monkeypatch, syntax, marker, size):
    needs_codec(syntax)
    files = write_series(tmp_path, scan((96, 72, 3)), AXIAL, compress=syntax)
    data = bytearray(files[1].read_bytes())
    struct.pack_into(size[1], data, data.index(marker) + size[0], 60000, 60000)
    files[1].write_bytes(data)
    decode = CodecProcess.decode

    def bounded(self, code, *rest):
        assert struct.pack(size[1], 60000, 60000) not in code
        return decode(self, code, *rest)

    monkeypatch.setattr(CodecProcess, "decode", bounded)
    refused(tmp_path, files[1], "60000")


def test_a_length_field_of_gigabytes_makes_no_room_for_them(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL, syntax=ImplicitVRLittleEndian)
    data = bytearray(files[1].read_bytes())
    at = data.index(struct.pack("<HH", 0x0020, 0x0032))
    struct.pack_into("<L", data, at + 4, 0xFFFFFFF0)
    files[1].write_bytes(data)
    tracemalloc.start()
    refused(tmp_path, files[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


@pytest.mark.parametrize(
    ("syntax", "package"),
    [
        (JPEG2000Lossless, "pylibjpeg-openjpeg"),
        (HTJ2KLossless, "pylibjpeg-openjpeg"),
        (JPEGLSLossless, "pyjpegls"),
        (JPEGLosslessSV1, "python-gdcm"),
    ],
)
def test_a_missing_codec_names_syntax_package_and_command(tmp_path, monkeypatch, syntax, package):
    monkeypatch.setattr(get_decoder(syntax), "_available", {})
    files = write_series(tmp_path, scan(), AXIAL)
    for file in files:
        ds = pydicom.dcmread(file)
        ds.file_meta.TransferSyntaxUID = syntax
        ds.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xd9"])
        ds["PixelData"].is_undefined_length = True
        ds.save_as(file)
    refused(tmp_path, syntax.name, package, 'python -m pip install "pylibjpeg', kind=MissingPart)


def test_an_unknown_transfer_syntax_is_refused(tmp_path):
    files = write_series(tmp_path, scan(), AXIAL)
    for file in files:
        data = file.read_bytes()
        file.write_bytes(data.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.9\0"))
    refused(tmp_path, "1.2.840.10008.1.2.9", "not supported")
