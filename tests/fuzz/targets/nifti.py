"""NIfTI-1 and -2, alone, packed and as a pair, and Analyze."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from fuzz.targets import BUDGET
from mona_infer.io.nifti_header import LAYOUTS, MAGIC, PAIR_MAGIC, Header
from mona_infer.io.read import label_ids, read_frames

PLAIN, PACKED, GZIP, PAIR = range(4)
DICTIONARY = [*MAGIC.values(), *PAIR_MAGIC.values(), b"\x5c\x01\0\0", b"\x1c\x02\0\0", b"\0\0\xc0\x7f", b"\xff" * 8]
SHAPE = (5, 4, 3)


def seeds() -> Iterator[bytes]:
    voxels, floats = bytes(range(60)), np.arange(60, dtype=np.float32).tobytes()
    for size in (348, 540):
        for kind in (PLAIN, PACKED):
            yield bytes([kind]) + header(size) + bytes(4) + voxels
        big = Header(np.frombuffer(header(size), LAYOUTS[size]).astype(LAYOUTS[size].newbyteorder(">")).reshape(()))
        yield bytes([PLAIN]) + bytes(big) + bytes(4) + voxels
        yield bytes([PAIR]) + header(size, magic=PAIR_MAGIC[size], vox_offset=0) + voxels
        yield bytes([PLAIN]) + header(size, sform_code=0) + bytes(4) + voxels
        yield bytes([PLAIN]) + header(size, sform_code=0, qform_code=0) + bytes(4) + voxels
        yield bytes([PLAIN]) + header(size, dim=[4, 5, 2, 3, 2, 1, 1, 1]) + bytes(4) + voxels
        yield bytes([PLAIN]) + header(size, datatype=16, bitpix=32, scl_slope=2) + bytes(4) + floats
    yield bytes([PAIR]) + header(348, magic=b"", vox_offset=0, sform_code=0, qform_code=0) + voxels  # Analyze
    yield bytes([GZIP]) + gzip.compress(header(348) + bytes(4) + voxels, mtime=0)


def read(data: bytes, folder: Path) -> None:
    kind, content = data[0] % 4 if data else PLAIN, data[1:]
    path = folder / ("a.nii", "a.nii.gz", "a.nii.gz", "a.hdr")[kind]
    if kind == PAIR:
        size = 540 if content[:2] in (b"\x1c\x02", b"\0\0") else 348
        path.write_bytes(content[:size])
        path.with_suffix(".img").write_bytes(content[size:])
    else:
        path.write_bytes(gzip.compress(content, 1, mtime=0) if kind == PACKED else content)
    for volume in islice(read_frames(path, budget=BUDGET), 3):
        assert volume.voxels.shape == volume.shape
        assert np.isfinite(volume.affine).all()
        label_ids(volume)


def header(size: int, **changes: object) -> bytes:
    made = Header.empty(size)
    made["dim"] = [3, *SHAPE, 1, 1, 1, 1]
    made["datatype"], made["bitpix"], made["magic"], made["vox_offset"] = 2, 8, MAGIC[size], size + 4
    made.set_affine(np.array([[1.4, 0.1, 0, 3], [-0.1, 1.4, 0, 4], [0, 0, 8, 5], [0, 0, 0, 1]]))
    for name, value in changes.items():
        made[name] = value
    return bytes(made)
