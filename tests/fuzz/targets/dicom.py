"""A DICOM file: alone, as a slice among good ones, as a Segmentation; and a zip of DICOM.

Codecs are not fuzzed: they run in a child process (`codec_process`) that may crash, so here they answer zeros.
"""

from __future__ import annotations

import io
import itertools
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
from helpers.dicom_files import write_enhanced, write_label_map, write_series
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from fuzz.targets import BUDGET
from mona_infer.io.dicom.codec_process import CodecProcess
from mona_infer.io.dicom.series import list_series
from mona_infer.io.read import label_ids, read_frames

ALONE, AMONG, ZIP = range(3)
AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])
VOXELS = np.arange(60, dtype=np.int16).reshape(5, 4, 3)
DICTIONARY = [b"\x28\0\x10\0US\x02\0", b"\x28\0\x08\0IS", b"\xfe\xff\0\xe0", b"\xfe\xff\xdd\xe0\0\0\0\0", b"MOSAIC"]
DICTIONARY += [b"\xff\xff\xff\xff", b"SQ\0\0", b"\x20\0\x32\0DS", b"\x20\0\x37\0DS", b"\xe0\x7f\x10\0OW\0\0", b"\\"]


def _zeros(self: object, code: bytes, syntax: str, options: object, shape: tuple[int, int], name: str) -> object:
    return np.zeros(shape, np.int16)


@cache
def _made() -> dict[str, list[bytes]]:
    """Files as bytes; the same in each process."""
    with tempfile.TemporaryDirectory() as name, mock.patch("helpers.dicom_files.generate_uid", _uids()):
        at, made = Path(name), {}
        for syntax in (ImplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian):
            made[syntax.name] = write_series(at / syntax, VOXELS, AFFINE, syntax=syntax)
        made["plain"] = write_series(at / "plain", VOXELS, AFFINE, RescaleSlope=2)
        made["packed"] = write_series(at / "packed", VOXELS, AFFINE, compress=RLELossless)
        made["enhanced"] = [write_enhanced(at / "e.dcm", VOXELS, AFFINE, undefined_lengths=True)]
        made["cine"] = [write_enhanced(at / "c.dcm", np.stack([VOXELS, VOXELS], 3), AFFINE)]
        made["seg"] = [write_label_map(at / "s.dcm", VOXELS % 3, AFFINE)]
        return {key: [path.read_bytes() for path in paths] for key, paths in made.items()}


def _uids():
    numbers = itertools.count(1)
    return lambda *_, **__: f"1.2.826.0.1.3680043.8.498.{next(numbers)}"


def seeds() -> Iterator[bytes]:
    for name, files in _made().items():
        kind = ALONE if len(files) == 1 else AMONG
        yield bytes([kind]) + files[-1]
        if name == "plain":
            yield bytes([ALONE]) + files[0]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for n, file in enumerate(_made()["plain"]):
            archive.writestr(zipfile.ZipInfo(f"{n}.dcm"), file)
    yield bytes([ZIP]) + packed.getvalue()


@mock.patch.object(CodecProcess, "decode", _zeros)
def read(data: bytes, folder: Path) -> None:
    kind, content = data[0] % 3 if data else ALONE, data[1:]
    path = folder / ("0.zip" if kind == ZIP else "2.dcm")
    path.write_bytes(content)
    if kind == AMONG:
        for n, file in enumerate(_made()["plain"][:2]):
            (folder / f"{n}.dcm").write_bytes(file)
        path = folder
        list_series(path, BUDGET)
    for volume in itertools.islice(read_frames(path, budget=BUDGET), 3):
        assert volume.voxels.shape == volume.shape
        assert np.isfinite(volume.affine).all()
        if volume.names:
            label_ids(volume)
