"""Hostile DICOM: whatever a header or a zip says of itself, it costs neither minutes nor gigabytes."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from helpers.dicom_files import write_enhanced, write_series
from pydicom.uid import DeflatedExplicitVRLittleEndian

from mona_infer.errors import InputError
from mona_infer.io.dicom import limits as dicom_limits
from mona_infer.io.dicom.read import read_dicom
from mona_infer.system.memory_budget import memory_budget

AXIAL = np.diag([-1.0, -1.0, 2.5, 1.0])
SIZE = 16 << 20
EMPTY_ITEM = struct.pack("<HHL", 0xFFFE, 0xE000, 0)
HEAD = bytes(128) + b"DICM"


def element(group: int, number: int, vr: bytes, data: bytes, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    long = vr in (b"SQ", b"OB", b"UN", b"UT")
    return struct.pack("<HH2sHL" if long else "<HH2sH", group, number, vr, *([0] if long else []), size) + data


def meta(syntax: bytes = b"1.2.840.10008.1.2.1\0") -> bytes:
    inner = element(2, 0x10, b"UI", syntax)
    return HEAD + element(2, 0, b"UL", struct.pack("<L", len(inner))) + inner


def image(**tags) -> bytes:
    """An image without pixels, up to the functional groups."""
    parts = {
        0x00280002: (b"US", struct.pack("<H", 1)),
        0x00280004: (b"CS", b"MONOCHROME2 "),
        0x00280008: (b"IS", str(tags.get("frames", 1)).encode().ljust(8)),
        0x00280010: (b"US", struct.pack("<H", 4)),
        0x00280011: (b"US", struct.pack("<H", 4)),
        0x00280100: (b"US", struct.pack("<H", 16)),
        0x00280103: (b"US", struct.pack("<H", 0)),
    }
    return meta() + b"".join(element(tag >> 16, tag & 0xFFFF, *value) for tag, value in parts.items())


PIXELS = element(0x7FE0, 0x10, b"OB", b"", 0xFFFFFFFF)
HOSTILE = {
    "zeros": HEAD + bytes(SIZE),
    "zeros after the meta": meta() + bytes(SIZE),
    "a meta group without end": HEAD + element(2, 0x13, b"SH", b"") * (SIZE // 8),
    "one element again and again": meta() + element(8, 0x60, b"CS", b"") * (SIZE // 8),
    "a sequence of empty items": meta() + element(8, 0x1140, b"SQ", EMPTY_ITEM * (SIZE // 8), 0xFFFFFFFF),
    "empty frames": image() + element(0x5200, 0x9230, b"SQ", EMPTY_ITEM * (SIZE // 8)) + PIXELS,
    "as many frames as items": image(frames=SIZE // 8) + element(0x5200, 0x9230, b"SQ", EMPTY_ITEM * (SIZE // 8)),
    "more items than frames": image(frames=50_000) + element(0x5200, 0x9230, b"SQ", EMPTY_ITEM * (SIZE // 8)) + PIXELS,
    "the same without an end": image(frames=50_000)
    + element(0x5200, 0x9230, b"SQ", EMPTY_ITEM * (SIZE // 8), 0xFFFFFFFF),
    "millions of character sets": meta() + element(8, 5, b"UT", b"a\\" * (SIZE // 2)),
    "millions of numbers": image() + element(0x28, 0x30, b"UT", b"1\\" * (SIZE // 2)) + PIXELS,
    "millions of transfer syntaxes": HEAD + element(2, 0x10, b"UT", b"1\\" * (SIZE // 2)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_header_costs_what_a_header_may_cost(tmp_path, kind):
    """The 16 MB of each took 6 to 60 s (of the frames, without end) and up to 1.4 GB."""
    (tmp_path / "x.dcm").write_bytes(HOSTILE[kind])
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        read_dicom(tmp_path / "x.dcm", budget=memory_budget())
    assert time.process_time() - started < 8
    assert "x.dcm" in str(caught.value)
    assert "\n" not in str(caught.value)
    if kind.startswith(("zeros", "a ", "one ", "the same")):
        assert "more elements than any scanner writes" in str(caught.value)


def test_a_zip_bomb_is_refused_within_any_budget(tmp_path):
    archive = zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("a.dcm", "w", force_zip64=True) as member:
        member.write(HEAD)
        for _ in range(600):
            member.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"bomb.zip would expand from 0.61 MB to 0.63 GB, like a decompression bomb"):
        read_dicom(tmp_path / "bomb.zip", budget=1 << 40)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_member_is_held_once_and_only_if_it_is_dicom(tmp_path):
    size = 48 << 20
    write_series(tmp_path / "in", np.zeros((6, 5, 2), np.int16), AXIAL)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (tmp_path / "in").iterdir():
            archive.write(file, file.name)
        archive.writestr("notes.bin", bytes(size))
        archive.writestr("other.dcm", HEAD + bytes(size))
    for name, most in (("notes.bin", 0.2), ("other.dcm", 1.4)):
        with zipfile.ZipFile(tmp_path / "a.zip") as whole, zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
            for member in ("0000.dcm", "0001.dcm", name):
                archive.writestr(member, whole.read(member))
        tracemalloc.start()
        try:
            read_dicom(tmp_path / "b.zip", budget=1 << 40)
        except InputError as error:
            assert name == "other.dcm" and "other.dcm" in str(error)
        assert tracemalloc.get_traced_memory()[1] < most * size
        tracemalloc.stop()


def test_a_deflated_bomb_is_refused_within_any_budget(tmp_path, monkeypatch):
    monkeypatch.setattr("mona_infer.io.decompression_bombs.BYTES", 1 << 24)
    packer = zlib.compressobj(wbits=-15)
    data = meta(DeflatedExplicitVRLittleEndian.encode() + b"\0" * (len(DeflatedExplicitVRLittleEndian) % 2))
    (tmp_path / "x.dcm").write_bytes(data + packer.compress(bytes(1 << 26)) + packer.flush())
    tracemalloc.start()
    with pytest.raises(InputError, match="like a decompression bomb"):
        read_dicom(tmp_path / "x.dcm", budget=1 << 40)
    assert tracemalloc.get_traced_memory()[1] < 1.6 * (1 << 24)
    tracemalloc.stop()


@pytest.mark.parametrize("undefined_lengths", [False, True])
def test_frames_may_have_long_headers(tmp_path, monkeypatch, undefined_lengths):
    """About 20 steps for each of 300 frames, where a header without frames is allowed a hundred."""
    voxels = np.zeros((8, 8, 300), np.int16)
    path = write_enhanced(tmp_path / "e.dcm", voxels, AXIAL, undefined_lengths=undefined_lengths)
    monkeypatch.setattr(dicom_limits.Meter.__init__, "__defaults__", (0, 100))
    assert read_dicom(path, budget=1 << 30).shape == (8, 8, 300)
    monkeypatch.setattr(dicom_limits, "STEPS_A_FRAME", 1)
    with pytest.raises(InputError, match="more elements than any scanner writes"):
        read_dicom(path, budget=1 << 30)
