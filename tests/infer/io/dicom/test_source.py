"""Files, folders and zips: what is looked into, what is passed over, what is refused."""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers.dicom_files import write_series
from helpers.dicom_reading import AXIAL, BUDGET, read, refused, scan, zipped
from pydicom.uid import DeflatedExplicitVRLittleEndian

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.parametrize("name", ["scan.zip", "scan"])
def test_zip(tmp_path, name):
    write_series(tmp_path / "in" / "deep", scan(), AXIAL)
    (tmp_path / "in" / "._0000.dcm").write_bytes(b"resource fork")
    path = zipped(tmp_path / name, tmp_path / "in")
    shutil.rmtree(tmp_path / "in")
    volume = read(path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert (volume.source, volume.notes) == (str(path), ())
    assert list(tmp_path.iterdir()) == [path]


def test_a_zip_bomb_is_refused_before_unpacking(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(3):
            archive.writestr(f"{k}.dcm", bytes(BUDGET // 2))
    assert (tmp_path / "bomb.zip").stat().st_size < BUDGET // 100
    refused(tmp_path / "bomb.zip", "bomb.zip", "memory budget")


def test_a_zip_that_lies_about_sizes_is_refused(tmp_path):
    write_series(tmp_path / "in", scan((64, 64, 2)), AXIAL)
    path = zipped(tmp_path / "lie.zip", tmp_path / "in")
    data = path.read_bytes()
    size = (tmp_path / "in" / "0000.dcm").stat().st_size
    for claimed in (400, size + 100):
        lie = data.replace(struct.pack("<L", size), struct.pack("<L", claimed))
        assert lie != data
        path.write_bytes(lie)
        refused(path, "lie.zip")


def test_encrypted_and_broken_zips_are_refused(tmp_path):
    write_series(tmp_path / "in", scan(), AXIAL)
    data = zipped(tmp_path / "a.zip", tmp_path / "in").read_bytes()
    locked = bytearray(data)
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(mark, at + 1)) >= 0:
            locked[at + flags] |= 1
    (tmp_path / "a.zip").write_bytes(locked)
    refused(tmp_path / "a.zip", "is encrypted; unpack it with its password")
    (tmp_path / "a.zip").write_bytes(data[: len(data) // 2])
    refused(tmp_path / "a.zip", "a.zip")
    torn = bytearray(data)
    torn[200:260] = bytes(60)
    (tmp_path / "a.zip").write_bytes(torn)
    refused(tmp_path / "a.zip", "a.zip")


def test_a_deflated_bomb_stops_at_the_budget(tmp_path):
    (file,) = write_series(tmp_path, scan((6, 5, 1)), AXIAL, syntax=DeflatedExplicitVRLittleEndian)
    data = file.read_bytes()
    start = 144 + struct.unpack("<L", data[140:144])[0]
    packer = zlib.compressobj(wbits=-15)
    file.write_bytes(data[:start] + packer.compress(bytes(4 * BUDGET)) + packer.flush())
    refused(file, "unpacks to more than the budget")


@pytest.mark.parametrize("content", [{}, {"a.txt": b"hello", "b.dcm": b"", "c": b"\0" * 200}], ids=["empty", "text"])
def test_folders_without_images_are_refused(tmp_path, content):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    refused(tmp_path, tmp_path, "is a DICOM image")


def test_paths_that_are_no_scan_are_refused(tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    refused(tmp_path / "nothing", "does not exist")
    refused(tmp_path / "note.txt", "not a DICOM file")
    refused(tmp_path / "DICOMDIR", "index")


def test_links_and_pipes_do_not_hang(tmp_path):
    write_series(tmp_path / "in", scan(), AXIAL)
    (tmp_path / "in" / "loop").symlink_to(tmp_path)
    (tmp_path / "in" / "self").symlink_to("self")
    os.mkfifo(tmp_path / "in" / "pipe.dcm")
    (tmp_path / "in" / "gone.dcm").symlink_to("nowhere")
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.voxels, scan())
    assert "gone.dcm" in volume.notes[0]


def test_a_slice_that_is_a_link_is_read(tmp_path):
    files = write_series(tmp_path / "in", scan(), AXIAL)
    shutil.move(files[3], tmp_path / "elsewhere")
    files[3].symlink_to(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read(tmp_path / "in").voxels, scan())


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    files = write_series(tmp_path, scan(), AXIAL)
    opened = Path.open

    def denied(self, *args, **options):
        if self == files[1]:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **options)

    monkeypatch.setattr(Path, "open", denied)
    refused(tmp_path, files[1], "Permission denied")


@pytest.mark.parametrize("kept", [3, 40, 0.5, 0.97])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path, kept):
    """Also in the last slice of the stack, where passing over it would go unseen."""
    files = write_series(tmp_path, scan((16, 16, 4)), AXIAL)
    data = files[3].read_bytes()
    rows = data.index(b"\x28\0\x10\0US")
    files[3].write_bytes(data[: int(kept * len(data))] if kept < 1 else data[: rows - int(kept)])
    refused(tmp_path, files[3])


def test_a_name_with_terminal_codes_is_shown_on_one_plain_line(tmp_path):
    (file,) = write_series(tmp_path, scan((6, 5, 1)), AXIAL, PixelSpacing=None, SeriesDescription="a\x1b[31m")
    file.rename(tmp_path / "bad\n\x1b[31m.dcm")
    assert "\x1b" not in refused(tmp_path, "bad??[31m.dcm")
    assert "\x1b" not in refused(tmp_path, "no series matches", series="b")
