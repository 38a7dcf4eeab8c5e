"""Damaged inputs for every reader, each a pure function of its number: `command(n, folder)` is what a user would type.

Scans as in `damaged`; NRRD and MetaImage; compressed DICOM and Segmentations; models, runs and data sets.
"""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial

import numpy as np
from pydicom import dcmread
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.encoders.base import get_encoder
from pydicom.uid import JPEG2000Lossless, JPEGLSLossless, RLELossless

from helpers import damaged
from helpers.dicom_files import write_label_map, write_series

COUNT = 1000
ANNOUNCES = {"segment": "model ", "data": "preparing "}  # how the first line of standard output may begin
AXIAL = np.diag([-1.5, -1.5, 8.0, 1.0])
VOXELS = bytes(np.arange(480, dtype=np.uint8) % 3)
NRRD = """NRRD0004
type: uint8
dimension: 3
space: left-posterior-superior
sizes: 12 10 4
space directions: (1.5,0,0) (0,1.5,0) (0,0,8)
encoding: ENCODING
space origin: (0,0,0)

"""
META = """ObjectType = Image
NDims = 3
BinaryData = True
CompressedData = PACKED
TransformMatrix = 1 0 0 0 1 0 0 0 1
Offset = 0 0 0
ElementSpacing = 1.5 1.5 8
DimSize = 12 10 4
ElementType = MET_UCHAR
ElementDataFile = LOCAL
"""


def command(n, folder):
    """Arguments of `mona` for input n.  Kinds take turns, so that consecutive numbers hold every kind."""
    return KINDS[n % len(KINDS)](np.random.default_rng(n), folder)


def kind(n):
    made = KINDS[n % len(KINDS)]
    return made.args[0].__name__ if isinstance(made, partial) else made.__name__


def _evaluate(make, rng, folder):
    reference = _scan(folder, "reference.nii.gz")
    return ["evaluate", make(rng, folder), reference, "--csv", folder / "out.csv", "--json", folder / "out.json"]


def _scan(folder, name):
    path = folder / name
    path.write_bytes(gzip.compress(damaged.good_bytes(), 1))
    return path


def _replaced(text, rng, changes):
    old, new = changes[rng.integers(len(changes))]
    assert old in text
    return text.replace(old, new)


def nrrd(rng, folder):
    header = NRRD.replace("ENCODING", "raw")
    changes = [
        ("type: uint8", "type: block"), ("sizes: 12 10 4", "sizes: 12 10 5"), ("sizes: 12 10 4", "sizes: 12 10"),
        ("sizes: 12", f"sizes: {rng.integers(30000, 1 << 31)}"), ("sizes: 12", "sizes: -12"), ("raw", "bzip3"),
        ("(0,0,8)", "(0,0,nan)"), ("(0,0,8)", "(0,0,0)"), ("(0,0,8)", "(0,8)"), ("dimension: 3", "dimension: 17"),
        ("space origin", "data file: missing.raw\nspace origin"), ("\n\n", ""), ("NRRD0004", "NRRD9"),
        ("(0,0,0)", "(1e300,0,0)"), ("space: left", "space: lift"),
    ]  # fmt: skip
    path = folder / "mask.nrrd"
    path.write_bytes(_replaced(header, rng, changes).encode() + VOXELS)
    return path


def packed_nrrd(rng, folder):
    data = gzip.compress(VOXELS, mtime=0)
    data = data[: rng.integers(len(data) - 8)] if rng.random() < 0.5 else rng.bytes(len(data))
    path = folder / "mask.nrrd"
    path.write_bytes(NRRD.replace("ENCODING", "gzip").encode() + data)
    return path


def metaimage(rng, folder):
    packed = rng.random() < 0.3
    changes = [
        ("DimSize = 12 10 4", "DimSize = 12 10 5"), ("DimSize = 12", f"DimSize = {rng.integers(30000, 1 << 40)}"),
        ("NDims = 3", "NDims = 9"), ("MET_UCHAR", "MET_STRING"), ("1.5 8", "1.5 inf"), ("1.5 8", "0 8"),
        ("LOCAL", "missing.raw"), ("LOCAL", "LIST"), ("1 0 0 0 1", "1 0 0 1 0"),
        ("BinaryData = True", "BinaryData = 7"),
        ("Offset = 0 0 0", "Offset = 1e30 0 0"), ("DimSize", "DimSieze"),
    ]  # fmt: skip
    data = zlib.compress(VOXELS) if packed else VOXELS
    header = META.replace("PACKED", str(packed))
    header, data = (header, data[: rng.integers(len(data) - 4)]) if packed else (_replaced(header, rng, changes), data)
    path = folder / "mask.mha"
    path.write_bytes(header.encode() + data)
    return path


def packed_dicom(rng, folder):
    """A codestream that is noise, cut and overwritten, of another size, or not there."""
    known = [u for u in (RLELossless, JPEGLSLossless, JPEG2000Lossless) if get_decoder(u).is_available]
    syntax = [u for u in known if get_encoder(u).is_available][rng.integers(len(known))]
    voxels = rng.integers(0, 4000, (96, 72, 3)).astype(np.int16)
    files = write_series(folder / "series", voxels, AXIAL, compress=syntax)
    path = files[rng.integers(3)]
    change, data = rng.integers(4), bytearray(path.read_bytes())
    if change == 0:
        start = data.index(b"\xe0\x7f\x10\x00") + 40
        data[start:-8] = rng.bytes(len(data) - 8 - start)
    elif change == 1:
        data[-1500:-1000] = bytes(500)
        del data[-900:]
    elif change == 2:
        ds = dcmread(path)
        ds.Rows, ds.Columns = int(ds.Rows) * 2, int(ds.Columns) // 2
        ds.save_as(path)
        data = bytearray(path.read_bytes())
    else:
        del data[data.index(b"\xe0\x7f\x10\x00") + 12 + rng.integers(16) :]
    path.write_bytes(data)
    return folder / "series"


def segmentation(rng, folder):
    labels = (np.arange(12 * 10 * 4) % 3).reshape(12, 10, 4)
    changes = [
        {"SegmentSequence": None}, {"SegmentationType": "GUESS"}, {"BitsAllocated": 32}, {"Rows": 4000},
        {"NumberOfFrames": 900}, {"PixelData": bytes(100)}, {"SharedFunctionalGroupsSequence": None},
        {"PerFrameFunctionalGroupsSequence": None}, {"SamplesPerPixel": 3},
    ]  # fmt: skip
    wrong = changes[rng.integers(len(changes) + 1) - 1] if rng.random() < 0.8 else {}
    path = write_label_map(folder / "mask.dcm", labels, AXIAL, **wrong)
    if not wrong:
        data = path.read_bytes()
        path.write_bytes(data[: rng.integers(400, len(data) - 20)])
    return path


def model(rng, folder):
    from helpers import hostile_models

    path = folder / "model.onnx"
    path.write_bytes(hostile_models.make(int(rng.integers(1 << 30))))
    return ["segment", _scan(folder, "scan.nii.gz"), "--model", path, "--out", folder / "mask.nii.gz"]


def run_toml(rng, folder):
    texts = [
        b"dataset = ", b"method = 'mona'", b"dataset = 'acdc'\nseed = -1", b"dataset = 'acdc'\nlr = true",
        b"[[[[" * 2000, b"a = " + b"[" * 5000,
        b"dataset = 'acdc'\nmethod = 'magic\\u001b'", b"dataset = 'acdc'\nsize = [7, 7]", b"\xff\xfe\0d",
        b"dataset = 'acdc'\n[stages.acr]\nqueries = 'many'", b"dataset = 1979-05-27", b"dataset = 'acdc'\nsteps = 0",
    ]  # fmt: skip
    (folder / "run.toml").write_bytes(texts[rng.integers(len(texts))])
    return ["export", folder]


def checkpoint(rng, folder):
    import torch

    from mona_train.run import checkpoint

    (folder / "run.toml").write_text("dataset = 'acdc'\nmethod = 'unet-l'\n")
    path = folder / "checkpoints" / "last.safetensors"
    path.parent.mkdir()
    tensors = {"student.unet.weight": torch.arange(60.0), "step": torch.tensor(1)}
    checkpoint.save(path, tensors, {"step": 1, "predicts": "unet", "task": {"name": "heart"}})
    data = bytearray(path.read_bytes())
    change = rng.integers(5)
    if change == 0:
        del data[rng.integers(len(data)) :]
    elif change == 1:
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    elif change == 2:
        data[:8] = int(rng.integers(1 << 62)).to_bytes(8, "little")
    elif change == 3:
        data = bytearray(rng.bytes(500))
    path.write_bytes(data)  # 4: whole, but without a network
    return ["export", folder]


def dataset_json(rng, folder):
    good = {"labels": {"0": "background", "1": "heart"}, "modality": {"0": "MR"}, "training": [{"image": "a.nii.gz"}]}
    changes = [
        {"labels": ["heart"]}, {"labels": {"0": "background", "1": 7}}, {"labels": {"5": "heart"}}, {"labels": None},
        {"training": ["../../outside.nii.gz"]}, {"training": [{"image": 7}]},
        {"training": [{"image": "missing.nii.gz"}]},
        {"training": [None]}, {"file_ending": ".png"}, {"labels": {"background": 0, "heart": 70000}},
    ]  # fmt: skip
    text = json.dumps(good | changes[rng.integers(len(changes))]).encode()
    if rng.random() < 0.3:
        text = [text[: rng.integers(len(text))], b"[" * 100_000, b"\xff\xfe", b"null"][rng.integers(4)]
    (folder / "data" / "labelsTr").mkdir(parents=True)  # without it there would be a warning as well
    (folder / "data" / "dataset.json").write_bytes(text)
    return ["data", "prepare", folder / "data", "--out", folder / "cache", "--size", "32x32"]


KINDS = [
    *(partial(_evaluate, make) for make in damaged.KINDS),
    *(partial(_evaluate, make) for make in (nrrd, packed_nrrd, metaimage, packed_dicom, segmentation)),
    *(model, run_toml, checkpoint, dataset_json),
]
