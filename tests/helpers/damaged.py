"""Damaged, lying and hostile inputs, each a pure function of its number: `make(n, folder)` gives the path."""

import gzip
import io
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np

from helpers.dicom_files import write_series

COUNT = 320
SHAPE = (24, 20, 8)
AFFINE = np.array([[1.4, 0.1, 0, 3], [-0.1, 1.4, 0.2, 4], [0, -0.1, 8.0, 5], [0, 0, 0, 1]])
LABELS = (np.random.default_rng(0).random(SHAPE) < 0.3).astype(np.uint8)
# Bytes of a NIfTI-1 header that matter, all little endian: what a flipped bit there breaks cannot be read around.
FIELDS = {"sizeof_hdr": 0, "dim[0]": 40, "dim[1]": 42, "dim[2]": 44, "dim[3]": 46, "datatype": 70, "bitpix": 72}
FIELDS |= {
    "pixdim[1]": 80 + 3,
    "srow_x": 280 + 2,
    "srow_y": 296 + 6,
    "srow_z": 312 + 10,
    "magic": 344,
    "vox_offset": 110,
}


def good_bytes(dtype=np.uint8):
    image = nib.Nifti1Image(LABELS.astype(dtype), AFFINE)
    return image.to_bytes()


def make(n, folder):
    """Input number n.  Kinds take turns, so that any run of consecutive numbers holds every kind."""
    kind = KINDS[n % len(KINDS)]
    return kind(np.random.default_rng(n), folder)


def _put(folder, name, data):
    path = Path(folder) / name
    path.write_bytes(data)
    return path


def truncated_gzip(rng, folder):
    data = gzip.compress(good_bytes())
    return _put(folder, "cut.nii.gz", data[: rng.integers(0, len(data) - 9)])


def truncated_plain(rng, folder):
    data = good_bytes()
    return _put(folder, "cut.nii", data[: rng.integers(0, len(data) - 1)])


def flipped_gzip(rng, folder):
    data = bytearray(gzip.compress(good_bytes()))
    at = rng.integers(10, len(data) - 4)  # past the gzip header, whose name and time bytes mean nothing
    data[at] ^= 1 << rng.integers(8)
    return _put(folder, "flipped.nii.gz", bytes(data))


def flipped_header(rng, folder):
    data = bytearray(good_bytes())
    field = sorted(FIELDS)[rng.integers(len(FIELDS))]
    data[FIELDS[field]] ^= 0x40 if field.startswith(("pixdim", "srow")) else 1 << rng.integers(1, 7)
    data[FIELDS["bitpix"]] = data[FIELDS["bitpix"]] or 24  # none is read as the right number
    if field.startswith("pixdim"):  # pixdim counts only without an sform
        data[254] = 0
    return _put(folder, "header.nii", bytes(data))


def lying_size(rng, folder):
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(good_bytes()), check=False)
    header["dim"][1:4] = rng.integers(200, 32000, 3)
    body = header.binaryblock + b"\0" * 4 + LABELS.tobytes(order="F")
    packed = rng.random() < 0.5
    return _put(folder, "lie.nii.gz" if packed else "lie.nii", gzip.compress(body) if packed else body)


def bomb(rng, folder):
    header = nib.Nifti1Header()
    header.set_data_dtype(rng.choice([np.uint8, np.int16, np.float32]))
    side = int(rng.integers(900, 1500))
    header.set_data_shape((side, side, side))
    zeros = gzip.compress(b"\0" * (4 << 20))
    size = side**3 * header.get_data_dtype().itemsize
    members = size // (4 << 20) + 1
    return _put(folder, "bomb.nii.gz", gzip.compress(header.binaryblock + b"\0" * 4) + zeros * members)


def nan_affine(rng, folder):
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(good_bytes()), check=False)
    row = ("srow_x", "srow_y", "srow_z")[rng.integers(3)]
    header[row][rng.integers(4)] = rng.choice([np.nan, np.inf, 1e30])
    return _put(folder, "nan.nii", header.binaryblock + b"\0" * 4 + LABELS.tobytes(order="F"))


def singular_affine(rng, folder):
    affine = AFFINE.copy()
    affine[:, rng.integers(3)] = 0 if rng.random() < 0.5 else affine[:, 1] * 1e-9
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(good_bytes()), check=False)
    for n, row in enumerate(("srow_x", "srow_y", "srow_z")):
        header[row] = affine[n]
    return _put(folder, "singular.nii", header.binaryblock + b"\0" * 4 + LABELS.tobytes(order="F"))


def wrong_suffix(rng, folder):
    choices = {
        "plain.nii.gz": good_bytes(),
        "packed.nii": gzip.compress(good_bytes()),
        "text.nii": b"patient,side\n1,left\n" * 40,
        "empty.nii.gz": b"",
        "empty.nii": b"",
        "picture.png": b"\x89PNG\r\n\x1a\n" + rng.bytes(400),
        "scan.mha": b"ObjectType = Image\n",
        "scan.dcm": rng.bytes(900),
        "scan.zip": rng.bytes(900),
        "noise.nii.gz": b"\x1f\x8b\x08" + rng.bytes(900),
        "noise.nii": rng.bytes(4000),
    }
    name = sorted(choices)[rng.integers(len(choices))]
    return _put(folder, name, choices[name])


def odd_values(rng, folder):
    values = LABELS.astype(np.float32)
    values[tuple(rng.integers(0, n) for n in SHAPE)] = rng.choice([np.nan, np.inf, -3.0, 0.25, 1e9])
    nib.save(nib.Nifti1Image(values, AFFINE), Path(folder) / "odd.nii.gz")
    return Path(folder) / "odd.nii.gz"


def odd_shape(rng, folder):
    shape = [(24, 20), (24, 20, 8, 5), (24, 20, 8, 1, 3), (24,), (20, 24, 8), (24, 20, 7)][rng.integers(6)]
    image = nib.Nifti1Image(np.zeros(shape, np.uint8), AFFINE)
    return _put(folder, "shape.nii", image.to_bytes())


def odd_type(rng, folder):
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(good_bytes()), check=False)
    code = int(rng.choice([0, 1, 32, 128, 1536, 1792, 2048, 2304, 7, 9999]))  # complex, RGB, float128, nonsense
    header["datatype"], header["bitpix"] = code, 8
    return _put(folder, "type.nii", header.binaryblock + b"\0" * 4 + LABELS.tobytes(order="F"))


def no_dicom(rng, folder):
    inside = Path(folder) / "series"
    inside.mkdir()
    for n in range(rng.integers(0, 4)):
        (inside / f"note{n}.txt").write_bytes(rng.bytes(200))
    return inside


def _series(rng, folder):
    inside = Path(folder) / "series"
    write_series(inside, LABELS[:12, :10].astype(np.int16), AFFINE)
    return inside, sorted(p for p in inside.rglob("*") if p.is_file())


def missing_slice(rng, folder):
    inside, files = _series(rng, folder)
    by_position = sorted(files, key=lambda p: p.name)
    by_position[rng.integers(2, len(files) - 2)].unlink()
    return inside


def truncated_dicom(rng, folder):
    inside, files = _series(rng, folder)
    for path in files:  # all of them, so that no whole series is left
        path.write_bytes(path.read_bytes()[: rng.integers(0, 300)])
    return inside


def flipped_dicom(rng, folder):
    """Geometry or size flipped in one file of the series: no longer one stack."""
    import pydicom

    inside, files = _series(rng, folder)
    ds = pydicom.dcmread(files[rng.integers(1, len(files) - 1)])
    change = rng.integers(4)
    if change == 0:
        ds.Rows = int(ds.Rows) ^ 64
    elif change == 1:
        ds.ImageOrientationPatient = [0, 1, 0, 0, 0, -1]
    elif change == 2:
        ds.ImagePositionPatient = [1e5, 1e5, 1e5]
    else:
        del ds.ImagePositionPatient
    ds.save_as(ds.filename)
    return inside


def zip_of_nothing(rng, folder):
    path = Path(folder) / "case.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(rng.integers(0, 3)):
            archive.writestr(f"../../escape{n}.txt", rng.bytes(50))
    return path


def cut_zip(rng, folder):
    _, files = _series(rng, folder)
    path = Path(folder) / "case.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    data = path.read_bytes()
    return _put(folder, "case.zip", data[: rng.integers(1, len(data) - 30)])


KINDS = [
    truncated_gzip,
    flipped_header,
    lying_size,
    bomb,
    nan_affine,
    wrong_suffix,
    truncated_dicom,
    flipped_gzip,
    odd_values,
    odd_shape,
    odd_type,
    no_dicom,
    missing_slice,
    flipped_dicom,
    zip_of_nothing,
    cut_zip,
    truncated_plain,
    singular_affine,
]
