"""The child process that decodes compressed frames: the same values, and an error that names the file if it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.dicom_files import write_enhanced, write_series
from helpers.dicom_reading import AXIAL, read, refused, scan
from pydicom.data import get_testdata_file
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import JPEGLSLossless

from mona_infer.io.dicom import codec_process
from mona_infer.io.dicom.codec_process import CodecProcess
from mona_infer.io.dicom.header import read_headers
from mona_infer.io.dicom.pixels import _decoded_frames
from mona_infer.io.dicom.read import read_dicom_frames
from mona_infer.io.dicom.source import File

pytestmark = pytest.mark.usefixtures("silence")

# In pydicom's package: JPEG 2000 (lossless, lossy, signed pixels in an unsigned stream), JPEG-LS (both), JPEG, RLE.
REAL = (
    *("MR_small_jp2klossless.dcm", "JPEG2000.dcm", "693_J2KI.dcm", "J2K_pixelrep_mismatch.dcm"),
    *("MR_small_jpeg_ls_lossless.dcm", "JPEGLSNearLossless_08.dcm", "JPEGLSNearLossless_16.dcm"),
    *("MR_small_RLE.dcm", "rtdose_rle.dcm"),
)


@pytest.fixture
def started(monkeypatch):
    """The children that a test starts."""
    children, start = [], CodecProcess._start

    def noted(self):
        children.append(start(self))
        return children[-1]

    monkeypatch.setattr(CodecProcess, "_start", noted)
    return children


def jpegls(folder, slices=3):
    if not get_decoder(JPEGLSLossless).is_available:
        pytest.skip("no codec for JPEG-LS")
    return write_series(folder, scan((32, 24, slices)), AXIAL, compress=JPEGLSLossless)


def test_real_files_have_the_values_that_pydicom_decodes(tmp_path, capfd):
    with CodecProcess() as codecs:
        for name in REAL:
            path = Path(get_testdata_file(name, download=False))
            (header,), _, _ = read_headers([File(name, lambda path=path: path.open("rb"))], path, 1 << 30)
            if not get_decoder(header.tags.file_meta.TransferSyntaxUID).is_available:
                pytest.skip(f"no codec for {name}")
            wanted = {k: [(k, SimpleNamespace(name=name))] for k in range(header.frames)}
            with path.open("rb") as stream:
                ours = list(_decoded_frames(stream, header, wanted, codecs))
            theirs = list(iter_pixels(path, raw=True, indices=list(wanted)))
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
            assert ours[0].dtype == theirs[0].dtype
    capfd.readouterr()  # GDCM prints in this process


def test_one_child_for_a_series_and_none_for_an_uncompressed_one(tmp_path, started):
    write_series(tmp_path / "plain", scan(), AXIAL)
    read(tmp_path / "plain")
    assert started == []
    jpegls(tmp_path / "packed")
    read(tmp_path / "packed")
    (child,) = started
    assert child.returncode is not None  # it has ended and was waited for


def test_the_time_points_of_a_cine_share_a_child(tmp_path, started):
    voxels = scan((32, 24, 2, 3))
    path = write_enhanced(tmp_path / "cine.dcm", voxels, AXIAL, compress=JPEGLSLossless)
    for t, volume in enumerate(read_dicom_frames(path, budget=1 << 24)):
        np.testing.assert_array_equal(volume.voxels, voxels[..., t])
    assert len(started) == 1
    next(read_dicom_frames(path, budget=1 << 24))  # abandoned after the first
    assert started[1].returncode is not None


CODECS = {
    "hangs": "import time; time.sleep(60)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "exits": "import os; os._exit(3)",
    "is greedy": "bytearray(1 << 30)",
}


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ("hangs", "took more than 1 s"),
        ("crashes", "ended the decoder (SIGSEGV)"),
        ("exits", "ended the decoder (exit code 3)"),
        ("is greedy", "too much memory"),
    ],
)
def test_a_codec_that_fails_is_an_error_of_its_file(tmp_path, monkeypatch, codec, says):
    """The child itself, with a codec that does that."""
    script = f"""
import runpy, pydicom.pixels.decoders.base as base
def get_decoder(syntax):
    {CODECS[codec]}
base.get_decoder = get_decoder
runpy.run_path({str(codec_process.CHILD)!r}, run_name="__main__")
"""
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(codec_process, "CHILD", tmp_path / "child.py")
    monkeypatch.setattr(codec_process, "SECONDS", 1.0 if codec == "hangs" else 60.0)
    files = jpegls(tmp_path / "in")
    refused(tmp_path / "in", files[0], says, "export it again")


def test_a_frozen_child_is_ended(tmp_path, monkeypatch, started):
    """Even before it has taken the codestream out of its pipe."""
    monkeypatch.setattr(codec_process, "SECONDS", 1.0)
    ask = CodecProcess._ask

    def frozen(self, child, request, *rest):
        if request:
            os.kill(child.pid, signal.SIGSTOP)
        return ask(self, child, request + bytes(1 << 20), *rest)

    monkeypatch.setattr(CodecProcess, "_ask", frozen)
    files = jpegls(tmp_path)
    refused(tmp_path, files[0], "took more than 1 s")
    assert started[0].returncode == -signal.SIGKILL


def test_a_child_that_cannot_start_is_not_the_files_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(codec_process, "CHILD", tmp_path / "missing.py")
    jpegls(tmp_path / "in")
    refused(tmp_path / "in", "starting the decoder of compressed DICOM ended the decoder (exit code 2)", "mona doctor")


def test_the_child_ends_with_its_parent():
    child = subprocess.Popen(
        [sys.executable, "-P", codec_process.CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    clock = threading.Timer(120, child.kill)
    clock.start()
    assert child.stdout.readline() == b"ready\n"
    began = time.monotonic()
    assert child.communicate()[0] == b""  # closes stdin, as the end of its parent does
    clock.cancel()
    assert child.returncode == 0 and time.monotonic() - began < 60
