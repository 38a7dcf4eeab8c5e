"""NRRD and MetaImage read as ITK reads them; what cannot be read is refused in words, before anything is allocated."""

import gzip
import zlib

import numpy as np
import pytest
from helpers.itk_files import itk_volume, itk_write
from helpers.orientations import rotation

from mona_infer import InputError, Volume, read_volume
from mona_infer.io.nifti import write_nifti
from mona_infer.io.read import read_frames, read_grid

SHAPE = (5, 6, 7)
VOXELS = np.asfortranarray(np.random.default_rng(0).integers(-99, 99, SHAPE).astype(np.int16))
AFFINE = np.eye(4)
AFFINE[:3, :3] = rotation(20, -35, 50) @ np.diag([1.5, 1.4, 7.0])
AFFINE[:3, 3] = 9, -120, 33
DTYPES = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
FILES = ["a.nrrd", "a.nhdr", "a.mha", "a.mhd"]


@pytest.mark.parametrize("compress", [False, True], ids=["raw", "compressed"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_itk_writes(tmp_path, name, dtype, compress):
    voxels = np.random.default_rng(1).integers(0, 99, SHAPE).astype(dtype)
    path = itk_write(tmp_path / name, voxels, AFFINE, compress=compress)
    volume = read_volume(path)
    assert volume.voxels.dtype.newbyteorder("=") == np.dtype(dtype)
    np.testing.assert_array_equal(volume.voxels, voxels)
    np.testing.assert_allclose(volume.affine, AFFINE, atol=1e-12)
    assert volume.notes == () and read_grid(path)[0] == SHAPE
    assert isinstance(volume.voxels.base, np.memmap) or isinstance(volume.voxels, np.memmap) or compress


def nrrd(path, data=b"", **fields):
    """A file by hand: the usual header, with some of its fields replaced, or left out where they are None."""
    usual = {
        "type": "short", "dimension": 3, "space": "left-posterior-superior", "sizes": "5 6 7",
        "space directions": "(0,1.5,0) (-1.4,0,0) (0,0,7)", "space origin": "(1,2,3)", "kinds": "domain domain domain",
        "endian": "little", "encoding": "raw",
    }  # fmt: skip
    usual |= {name.replace("_", " "): value for name, value in fields.items()}
    if usual["space"] is None and "space dimension" in usual:
        usual = {"space dimension": usual.pop("space dimension"), **usual}  # teem wants it before the directions
    lines = ["NRRD0004", "# a comment", *(f"{k}: {v}" for k, v in usual.items() if v is not None)]
    path.write_bytes("\n".join([*lines, "", ""]).encode() + data)
    return path


def meta(path, data=b"", **fields):
    usual = {
        "ObjectType": "Image", "NDims": 3, "BinaryData": "True", "BinaryDataByteOrderMSB": "False",
        "CompressedData": "False", "TransformMatrix": "0 1 0 -1 0 0 0 0 1", "Offset": "1 2 3",
        "ElementSpacing": "1.5 1.4 7", "DimSize": "5 6 7", "ElementType": "MET_SHORT", "ElementDataFile": "LOCAL",
    }  # fmt: skip
    usual |= fields
    usual["ElementDataFile"] = usual.pop("ElementDataFile")  # the last line
    lines = [f"{name} = {value}" for name, value in usual.items() if value is not None]
    path.write_bytes("\n".join([*lines, ""]).encode() + data)
    return path


RAW = VOXELS.tobytes(order="F")
BIG = VOXELS.astype(">i2").tobytes(order="F")
NRRDS = {
    "left-posterior-superior": {},
    "right-anterior-superior": {"space": "right-anterior-superior"},
    "RAS": {"space": "RAS"},
    "left-anterior-superior": {"space": "left-anterior-superior"},
    "LAS": {"space": "LAS"},
    "right-handed": {"space": "3D-right-handed"},
    "scanner": {"space": "scanner-xyz"},
    "no name": {"space": None, "space_dimension": "3"},
    "no origin": {"space_origin": None},
    "spacings": {"space": None, "space_directions": None, "space_origin": None, "spacings": "1.5 1.4 7"},
    "axis mins": {
        "space": None, "space_directions": None, "space_origin": None, "spacings": "1.5 1.4 7", "axis_mins": "4 5 6",
    },
    "axis mins of nodes": {
        "space": None, "space_directions": None, "space_origin": None, "spacings": "1.5 1.4 7", "axis_mins": "4 5 6",
        "centerings": "node node cell",
    },
    "big endian": {"endian": "big", "data": BIG},
    "gzip": {"encoding": "gzip", "data": gzip.compress(RAW)},
    "gz, byte skip": {"encoding": "gz", "byte_skip": "3", "data": gzip.compress(b"123" + RAW)},
    "line skip": {"line_skip": "2", "data": b"one\ntwo\n" + RAW},
    "byte skip": {"byte_skip": "5", "data": b"12345" + RAW},
    "at the end": {"byte_skip": "-1", "data": b"whatever" + RAW},
    "synonyms": {"type": "signed short int", "kinds": "space space space"},
    "no kinds": {"kinds": None},
}  # fmt: skip
METAS = {
    "usual": {},
    "big endian": {"BinaryDataByteOrderMSB": "True", "data": BIG},
    "big endian, other name": {"BinaryDataByteOrderMSB": None, "ElementByteOrderMSB": "True", "data": BIG},
    "zlib": {"CompressedData": "True", "CompressedDataSize": len(zlib.compress(RAW)), "data": zlib.compress(RAW)},
    "rotation": {"TransformMatrix": None, "Offset": None, "Rotation": "1 0 0 0 0 1 0 1 0", "Position": "4 5 6"},
    "orientation": {"TransformMatrix": None, "Offset": None, "Orientation": "1 0 0 0 0 1 0 1 0", "Origin": "4 5 6"},
    "no orientation": {"TransformMatrix": None, "Offset": None},
    "element size": {"ElementSpacing": None, "ElementSize": "1.5 1.4 7"},
    "no spacing": {"ElementSpacing": None},
    "slope": {"ElementToIntensityFunctionSlope": "2", "ElementToIntensityFunctionOffset": "1"},
}  # fmt: skip


def check_against_itk(path):
    volume, (voxels, affine) = read_volume(path), itk_volume(path)
    np.testing.assert_array_equal(volume.intensities(volume.voxels), voxels)
    np.testing.assert_allclose(volume.affine, affine, atol=1e-12)
    np.testing.assert_array_equal(volume.voxels, VOXELS)
    return volume


@pytest.mark.parametrize("case", NRRDS)
def test_every_kind_of_nrrd_header_as_itk_reads_it(tmp_path, case):
    volume = check_against_itk(nrrd(tmp_path / "a.nrrd", **{"data": RAW, **NRRDS[case]}))
    told = {"right-handed": "3d-right-handed", "scanner": "scanner-xyz", "no name": "no name"}
    assert bool(volume.notes) == (case in (*told, "spacings", "axis mins", "axis mins of nodes"))
    assert case not in told or f"({told[case]})" in volume.notes[0]


@pytest.mark.parametrize("case", METAS)
def test_every_kind_of_metaimage_header_as_itk_reads_it(tmp_path, case):
    volume = check_against_itk(meta(tmp_path / "a.mha", **{"data": RAW, **METAS[case]}))
    assert bool(volume.notes) == case.startswith("no ")


def test_detached_voxels_lie_beside_their_header(tmp_path):
    (tmp_path / "some voxels.raw").write_bytes(b"junk" + RAW)
    (tmp_path / "packed.raw.gz").write_bytes(gzip.compress(RAW))
    check_against_itk(nrrd(tmp_path / "a.nhdr", data_file="some voxels.raw", byte_skip="4"))
    check_against_itk(nrrd(tmp_path / "b.nhdr", datafile="packed.raw.gz", encoding="gzip"))
    check_against_itk(meta(tmp_path / "a.mhd", HeaderSize=4, ElementDataFile="some voxels.raw"))
    header = nrrd(tmp_path / "c.nhdr", data_file="some voxels.raw", byte_skip="4")
    header.write_bytes(header.read_bytes().rstrip())  # no empty line at the end: nothing follows anyway
    np.testing.assert_array_equal(read_volume(header).voxels, VOXELS)


@pytest.mark.parametrize("packed", [False, True])
def test_frames(tmp_path, packed):
    frames = np.stack([VOXELS, VOXELS + 1, VOXELS * 2], axis=3)
    last, first = frames.tobytes(order="F"), np.moveaxis(frames, 3, 0).tobytes(order="F")
    pack, options = (gzip.compress, {"encoding": "gzip"}) if packed else (bytes, {})
    three = "(0,1.5,0) (-1.4,0,0) (0,0,7)"
    four = "(0,1.5,0,0) (-1.4,0,0,0) (0,0,7,0) (0,0,0,2)"
    common = {"dimension": 4, **options}
    paths = [
        nrrd(tmp_path / "last.nrrd", pack(last), sizes="5 6 7 3", kinds="domain domain domain list",
             space_directions=f"{three} none", **common),
        nrrd(tmp_path / "first.nrrd", pack(first), sizes="3 5 6 7", kinds="list domain domain domain",
             space_directions=f"none {three}", **common),
        nrrd(tmp_path / "itk.nrrd", pack(last), sizes="5 6 7 3", kinds="domain domain domain domain", space=None,
             space_dimension=4, space_directions=four, space_origin="(1,2,3,0)", **common),
        meta(tmp_path / "a.mha", zlib.compress(last) if packed else last, NDims=4, DimSize="5 6 7 3",
             TransformMatrix="0 1 0 0 -1 0 0 0 0 0 1 0 0 0 0 1", Offset="1 2 3 0", ElementSpacing="1.5 1.4 7 30",
             CompressedData=str(packed)),
    ]  # fmt: skip
    single = read_volume(nrrd(tmp_path / "one.nrrd", RAW))
    for path in paths:
        assert read_grid(path)[0] == (*SHAPE, 3)
        for n, volume in enumerate(read_frames(path)):
            np.testing.assert_array_equal(volume.voxels, frames[..., n])
            np.testing.assert_array_equal(volume.affine, single.affine)
        np.testing.assert_array_equal(read_volume(path, frame=1).voxels, frames[..., 1])
        with pytest.raises(InputError, match=r"3 frames; choose one with --frame 0\.\.2"):
            read_volume(path)


@pytest.mark.parametrize(("unit", "factor"), [("um", 1e-3), ("m", 1e3), ("cm", 10.0), ("mm", 1.0)])
def test_lengths_are_converted_to_millimetres(tmp_path, unit, factor):
    steps = " ".join(f"({','.join(str(v / factor) for v in step)})" for step in ((0, 1.5, 0), (-1.4, 0, 0), (0, 0, 7)))
    origin = f"({','.join(str(v / factor) for v in (1, 2, 3))})"
    quoted = f'"{unit}" "{unit}" "{unit}"'
    plain = read_volume(nrrd(tmp_path / "mm.nrrd", RAW))
    files = [nrrd(tmp_path / "a.nrrd", RAW, space_directions=steps, space_origin=origin, space_units=quoted)]
    spacing, offset = (" ".join(str(v / factor) for v in values) for values in ((1.5, 1.4, 7), (1, 2, 3)))
    files.append(meta(tmp_path / "a.mha", RAW, DistanceUnits=unit, ElementSpacing=spacing, Offset=offset))
    fields = {"space": None, "space_directions": None, "space_origin": None, "axis_mins": offset}
    files.append(nrrd(tmp_path / "b.nrrd", RAW, spacings=spacing, units=quoted, **fields))
    for path in files[: 2 if unit != "m" else 1]:  # MetaIO knows no metres
        volume = read_volume(path)
        np.testing.assert_allclose(volume.affine, plain.affine, atol=1e-9)
        assert any(f"in {unit};" in note for note in volume.notes) == (factor != 1)
    expected = [[-1.5, 0, 0, -1 - 0.75], [0, -1.4, 0, -2 - 0.7], [0, 0, 7, 3 + 3.5], [0, 0, 0, 1]]
    np.testing.assert_allclose(read_volume(files[2]).affine, expected, atol=1e-9)


WHERE = [
    "../a.raw", "/etc/passwd", "sub/a.raw", "..", ".", "C:a.raw", "..\\a.raw", "\\\\host\\a.raw",
]  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
def test_a_header_cannot_reach_into_other_folders(tmp_path, where):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "in" / "sub"):
        (folder / "a.raw").write_bytes(RAW)
    for path in (
        nrrd(tmp_path / "in" / "a.nhdr", data_file=where),
        meta(tmp_path / "in" / "a.mhd", ElementDataFile=where),
    ):
        with pytest.raises(InputError, match="must be a file in the same folder"):
            read_volume(path)


REFUSED = {
    "bzip2": (nrrd, {"encoding": "bzip2"}, "encoding 'bzip2' is not supported, only raw and gzip"),
    "ascii": (nrrd, {"encoding": "ascii"}, "encoding 'ascii'"),
    "hex": (nrrd, {"encoding": "hex"}, "encoding 'hex'"),
    "no encoding": (nrrd, {"encoding": None}, "encoding ''"),
    "block": (nrrd, {"type": "block"}, "type 'block'"),
    "no endian": (nrrd, {"endian": None}, "endian: little"),
    "no type": (nrrd, {"type": None}, "type ''"),
    "2-D": (nrrd, {"dimension": 2, "sizes": "5 42", "space": None, "space_directions": None}, "says 2 dimensions"),
    "5-D": (nrrd, {"dimension": 5}, "says 5 dimensions"),
    "sizes": (nrrd, {"sizes": "5 6"}, "expected 3"),
    "negative": (nrrd, {"sizes": "5 -6 -7"}, "not a valid number of voxels"),
    "nothing": (nrrd, {"sizes": "0 6 7"}, "not a valid number of voxels"),
    "too many": (nrrd, {"sizes": "99999999 99999999 7"}, "not a valid number of voxels"),
    "more than there is": (nrrd, {"sizes": "5 6 8"}, "truncated or its header is wrong"),
    "too small": (nrrd, {"sizes": "5 6 80000", "encoding": "gzip", "data": gzip.compress(RAW)}, "header is wrong"),
    "cut": (nrrd, {"encoding": "gzip", "data": gzip.compress(RAW)[:-40]}, "damaged or truncated"),
    "flipped": (nrrd, {"encoding": "gzip", "data": gzip.compress(RAW)[:-6] + b"xxxxxx"}, "damaged or truncated"),
    "not gzip": (nrrd, {"encoding": "gzip"}, "damaged or truncated"),
    "list": (nrrd, {"data_file": "LIST"}, "in several files"),
    "pattern": (nrrd, {"data_file": "a%03d.raw 1 7 1"}, "in several files"),
    "missing": (nrrd, {"data_file": "b.raw"}, "b.raw, which is not in the same folder"),
    "colour": (nrrd, {"dimension": 4, "sizes": "3 5 6 7", "kinds": "RGB-color domain domain domain",
               "space_directions": "none (1,0,0) (0,1,0) (0,0,1)"}, "RGB-color voxels"),
    "2-D colour": (nrrd, {"kinds": "RGB-color domain domain", "space_directions": "none (1,0,0) (0,1,0)"}, "a 2-D one"),
    "in the middle": (nrrd, {"dimension": 4, "sizes": "5 3 6 7", "kinds": "domain list domain domain",
                      "space_directions": "(1,0,0) none (0,1,0) (0,0,1)"}, "the first or the last"),
    "directions": (nrrd, {"space_directions": "(1,0,0) (0,1,0)"}, "expected 3 space directions"),
    "flat directions": (nrrd, {"space_directions": "(1,0) (0,1) (0,0)"}, "of three numbers"),
    "words for numbers": (nrrd, {"space_directions": "(a,b,c) (0,1,0) (0,0,1)"}, "expected 3 number"),
    "singular": (nrrd, {"space_directions": "(1,0,0) (1,0,0) (0,0,1)"}, "singular"),
    "nan": (nrrd, {"space_directions": "(nan,0,0) (0,1,0) (0,0,1)"}, "not a finite"),
    "infinite": (nrrd, {"space_origin": "(1e999,0,0)"}, "not a finite"),
    "skip": (nrrd, {"byte_skip": "-3"}, "must be 0 or greater"),
    "m text": (meta, {"BinaryData": "False"}, "stored as text"),
    "m type": (meta, {"ElementType": "MET_FLOAT_ARRAY"}, "type MET_FLOAT_ARRAY"),
    "m colour": (meta, {"ElementNumberOfChannels": "3"}, "3 values per voxel"),
    "m list": (meta, {"ElementDataFile": "LIST"}, "in several files"),
    "m pattern": (meta, {"ElementDataFile": "a%03d.raw 1 7 1"}, "in several files"),
    "m missing": (meta, {"ElementDataFile": "b.raw"}, "b.raw, which is not in the same folder"),
    "m 2-D": (meta, {"NDims": "2", "DimSize": "5 42"}, "says 2 dimensions"),
    "m sizes": (meta, {"DimSize": "5 6 x"}, "expected 3"),
    "m more": (meta, {"DimSize": "5 6 8"}, "truncated or its header is wrong"),
    "m cut": (meta, {"CompressedData": "True", "data": zlib.compress(RAW)[:-40]}, "damaged or truncated"),
    "m flipped": (meta, {"CompressedData": "True", "data": zlib.compress(RAW)[:-4] + b"xxxx"}, "damaged or truncated"),
    "m not zlib": (meta, {"CompressedData": "True"}, "damaged or truncated"),
    "m lies": (meta, {"CompressedData": "True", "DimSize": "5 6 80000", "data": zlib.compress(RAW)}, "header is wrong"),
    "m matrix": (meta, {"TransformMatrix": "1 0 0"}, "expected 9"),
    "m no size": (meta, {"DimSize": None}, "has no DimSize"),
    "m skip": (meta, {"HeaderSize": "-7"}, "HeaderSize -7 is not valid"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_in_words(tmp_path, case):
    write, fields, words = REFUSED[case]
    path = write(tmp_path / ("a.nrrd" if write is nrrd else "a.mha"), **{"data": RAW, **fields})
    with pytest.raises(InputError, match=words) as refusal:
        read_volume(path)
    assert "\n" not in str(refusal.value) and str(path.name) in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.nrrd", b"NRRD0004\ntype: short\n", "its header does not end"),
        ("a.nrrd", b"NRRD0009\n\n", "does not begin with NRRD0001"),
        ("a.nrrd", b"\x89PNG\r\n\x1a\n" + RAW, "does not begin with NRRD0001"),
        ("a.nrrd", b"NRRD0004\nsome words\n\n", "damaged at 'some words'"),
        ("a.nrrd", b"NRRD0004\n" + b"#" * (9 << 20), "does not end within 8 MB"),
        ("a.mha", b"\x89PNG\r\n\x1a\n" + RAW, "not MetaImage"),
        ("a.mha", b"NDims = 3\n", "has no DimSize"),
        ("a.mha", b"a = " + b"#" * (9 << 20), "does not end within 8 MB"),
    ],
)
def test_what_is_neither(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words):
        read_volume(tmp_path / name)


@pytest.mark.parametrize("name", ["a.nrrd", "a.mha"])
def test_memory_is_asked_for_before_it_is_taken(tmp_path, name):
    zeros = np.zeros((128, 128, 64), np.int16).tobytes()
    if name == "a.nrrd":
        path = nrrd(tmp_path / name, gzip.compress(zeros), sizes="128 128 64", encoding="gzip")
    else:
        path = meta(tmp_path / name, zlib.compress(zeros), DimSize="128 128 64", CompressedData="True")
    with pytest.raises(
        InputError, match=r"needs 2\.10 MB of memory, but only 1\.00 MB can be used; save it uncompressed"
    ):
        read_volume(path, budget=1_000_000)
    assert read_volume(path, budget=3_000_000).shape == (128, 128, 64)


def test_segments_that_overlap_are_no_label_map(tmp_path):
    steps = "none (1,0,0) (0,1,0) (0,0,1)"
    fields = {"dimension": 4, "sizes": "2 5 6 7", "kinds": "list domain domain domain", "space_directions": steps}
    path = nrrd(tmp_path / "a.seg.nrrd", RAW * 2, **fields)
    path.write_bytes(path.read_bytes().replace(b"\n\n", b"\nSegment0_ID:=Segment_1\nSegment1_ID:=Segment_2\n\n", 1))
    with pytest.raises(InputError, match="overlapping segments in 2 layers"):
        read_volume(path)


def test_a_volume_from_nrrd_written_as_nifti_lies_where_it_lay(tmp_path):
    volume = read_volume(nrrd(tmp_path / "a.nrrd", RAW))
    write_nifti(tmp_path / "a.nii.gz", volume)
    voxels, affine = itk_volume(tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(voxels, VOXELS)
    np.testing.assert_allclose(affine, volume.affine, atol=1e-5)
    assert isinstance(volume, Volume) and volume.header is None


@pytest.mark.parametrize("kind", ["nrrd", "nrrd, gzip", "mha", "mha, zlib"])
def test_damage_anywhere_is_an_input_error_or_still_a_volume(tmp_path, kind):
    """Bytes changed, dropped or doubled in the header and behind it: never another exception, never a large array."""
    rng = np.random.default_rng(7)
    whole = {
        "nrrd": lambda path: nrrd(path, RAW),
        "nrrd, gzip": lambda path: nrrd(path, gzip.compress(RAW), encoding="gzip"),
        "mha": lambda path: meta(path, RAW),
        "mha, zlib": lambda path: meta(path, zlib.compress(RAW), CompressedData="True"),
    }[kind](tmp_path / f"whole.{kind[:4].rstrip(',')}")
    data, refused = whole.read_bytes(), 0
    path = whole.with_stem("damaged")
    for _ in range(400):
        at, end = sorted(int(n) for n in rng.integers(0, len(data), 2))
        how = rng.integers(4)
        changed = [
            data[:at] + bytes(rng.integers(32, 127, 3).astype(np.uint8)) + data[at + 3 :],
            data[:at] + data[at + int(rng.integers(1, 9)) :],
            data[:at] + data[at:end][:40] + data[at:],
            data[:at],
        ][how]
        path.write_bytes(changed)
        try:
            volume = read_volume(path, budget=10_000_000)
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 500, changed
            refused += 1
        else:
            assert volume.voxels.size < 1_000_000
    assert refused > 100
