"""NRRD and MetaImage: headers that are text, with the voxels behind them or in another file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fuzz.targets import BUDGET
from mona_infer.io.read import label_ids, read_frames

NAMES = ("a.nrrd", "a.nhdr", "a.mha", "a.mhd")
VOXELS = bytes(range(60))
NRRD = b"""NRRD0004
type: uint8
dimension: 3
space: left-posterior-superior
sizes: 5 4 3
space directions: (1.5,0,0) (0,1.5,0) (0,0,8)
kinds: domain domain domain
endian: little
encoding: %s
space origin: (-1,2,3)
"""
FRAMES = NRRD.replace(b"dimension: 3", b"dimension: 4").replace(b"5 4 3", b"5 4 3 1").replace(b"8)", b"8) none")
FRAMES = FRAMES.replace(b"kinds: domain", b"kinds: domain domain").replace(b"domain\nendian", b"list\nendian")
META = b"""ObjectType = Image
NDims = 3
BinaryData = True
BinaryDataByteOrderMSB = False
CompressedData = %s
TransformMatrix = 1 0 0 0 1 0 0 0 1
Offset = -1 2 3
AnatomicalOrientation = RAI
ElementSpacing = 1.5 1.5 8
DimSize = 5 4 3
ElementType = MET_UCHAR
ElementDataFile = %s
"""
DICTIONARY = [b"encoding: gzip", b"data file: ", b"byte skip: -1", b"line skip: ", b"dimension: 4", b"HeaderSize = -1"]
DICTIONARY += [b"space: right-anterior-superior", b"none", b"nan", b"MET_SHORT", b"LIST", b"CompressedDataSize = "]


def seeds() -> Iterator[bytes]:
    yield b"\0" + NRRD % b"raw" + b"\n" + VOXELS
    yield b"\0" + NRRD % b"gzip" + b"\n" + gzip.compress(VOXELS, mtime=0)
    yield b"\0" + FRAMES % b"raw" + b"\n" + VOXELS
    yield b"\1" + NRRD % b"raw" + b"data file: voxels.raw\nbyte skip: -1\n"
    yield b"\2" + META % (b"False", b"LOCAL") + VOXELS
    yield b"\2" + META % (b"True", b"LOCAL") + zlib.compress(VOXELS)
    yield b"\3" + META % (b"False", b"voxels.raw")


def read(data: bytes, folder: Path) -> None:
    path = folder / NAMES[data[0] % 4 if data else 0]
    path.write_bytes(data[1:])
    (folder / "voxels.raw").write_bytes(VOXELS)
    for volume in islice(read_frames(path, budget=BUDGET), 3):
        assert volume.voxels.shape == volume.shape
        label_ids(volume)
