"""DICOM that nobody here made: read as SimpleITK, pydicom and nibabel read it, or refused in one sentence; never wrong.

The files are those packaged with pydicom and nibabel, and what SimpleITK and dcmtk write on the fly.
"""

from __future__ import annotations

import gzip
import locale
import shutil
import subprocess
import warnings
from collections import Counter
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest

with warnings.catch_warnings():  # nibabel calls its readers experimental
    warnings.simplefilter("ignore")
    from nibabel.nicom.dicomwrappers import wrapper_from_file

from mona_infer.errors import InputError
from mona_infer.io.dicom.series import list_series
from mona_infer.io.read import read_volume

sitk = pytest.importorskip("SimpleITK")
pytestmark = pytest.mark.full

PYDICOM = Path(pydicom.__file__).parent / "data"
NIBABEL = Path(nibabel.__file__).parent / "nicom" / "tests" / "data"
NOT_DICOM = (".py", ".pyc", ".json", ".txt", ".md", ".icc", ".bin", ".dump", ".gz")  # zipMR.gz is a gzipped DICOM file
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
BUDGET = 1 << 31


@pytest.fixture(autouse=True)
def quiet():
    """ITK warns on standard error, and a file that it cannot read leaves the process in the C locale."""
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    before = locale.setlocale(locale.LC_ALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    locale.setlocale(locale.LC_ALL, before)


def itk_affine(image):
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    return LPS @ affine


def compare(volume, voxels, affine):
    """What differs, or nothing.  The thickness of a single slice is a matter of opinion: ITK says 1 mm."""
    if volume.shape != voxels.shape:
        return f"shape {volume.shape}, should be {voxels.shape}"
    if not np.allclose(volume.intensities(volume.voxels), voxels, rtol=1e-6, atol=1e-4):
        return "voxels"
    found, wanted = volume.affine.copy(), affine.copy()
    if volume.shape[2] == 1:
        for matrix in (found, wanted):
            matrix[:3, 2] /= np.linalg.norm(matrix[:3, 2])
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in volume.shape], indexing="ij")).reshape(3, -1)
    off = np.abs((found - wanted)[:3] @ np.vstack([corners, np.ones(8)])).max()
    return f"corners {off:.3f} mm away" if off > 0.01 else ""


def wrong_with(volume, path):
    """Against SimpleITK; against nibabel for mosaics, which ITK shows as one picture; else against pydicom's array."""
    ds = pydicom.dcmread(path)
    if "MOSAIC" in ds.get("ImageType", ()):
        wrapper = wrapper_from_file(path)
        if not usable(path):
            return "a mosaic that nibabel cannot take apart"
        return compare(volume, wrapper.get_data().transpose(1, 0, 2), LPS @ wrapper.affine[:, [1, 0, 2, 3]])
    try:
        image = sitk.ReadImage(str(path))
    except RuntimeError:
        x, y = np.array(ds.ImageOrientationPatient, float).reshape(2, 3)
        affine = np.eye(4)
        between_rows, between_columns = map(float, ds.PixelSpacing)
        affine[:3, :3] = np.stack([x * between_columns, y * between_rows, np.cross(x, y)], axis=1)
        affine[:3, 3] = np.array(ds.ImagePositionPatient, float)
        values = ds.pixel_array.T * float(ds.get("RescaleSlope", 1)) + float(ds.get("RescaleIntercept", 0))
        return compare(volume, values[..., None], LPS @ affine)
    return compare(volume, sitk.GetArrayFromImage(image).T, itk_affine(image))


def usable(path):
    """Whether pydicom alone finds a grey picture with a place in space: then there was no right to refuse it."""
    try:
        ds = pydicom.dcmread(path)
        if "MOSAIC" in ds.get("ImageType", ()):
            return wrapper_from_file(path).get_data().ndim == 3
        needed = ("ImageOrientationPatient", "ImagePositionPatient", "PixelSpacing")
        grey = ds.PhotometricInterpretation in ("MONOCHROME1", "MONOCHROME2") and ds.BitsAllocated > 1
        single = int(ds.get("NumberOfFrames") or 1) == 1  # more need functional groups
        placed = all(ds.get(word) for word in needed)
        return grey and single and placed and ds.Modality != "RTDOSE" and ds.pixel_array.size > 0
    except Exception:
        return False


def verdict(path):
    """Whether it is right or refused, or else what is wrong."""
    try:
        volume = read_volume(path, budget=BUDGET)
    except InputError as error:
        if "\n" in str(error) or path.name not in str(error):
            return f"{path.name}: refused without a name or in many lines: {error}"
        return f"{path.name}: refused though it can be read: {error}" if usable(path) else "refused"
    wrong = wrong_with(volume, path)
    return f"{path.name}: {wrong}" if wrong else "right"


def packaged(tmp_path):
    files = [p for p in sorted(PYDICOM.rglob("*")) if p.is_file() and p.suffix not in NOT_DICOM]
    for path in sorted(NIBABEL.glob("*.dcm*")):
        if path.suffix == ".gz":
            unpacked = tmp_path / path.stem
            unpacked.write_bytes(gzip.decompress(path.read_bytes()))
            path = unpacked
        files.append(path)
    zipped = PYDICOM / "test_files" / "zipMR.gz"
    if zipped.is_file():
        (tmp_path / "zipMR.dcm").write_bytes(gzip.decompress(zipped.read_bytes()))
        files.append(tmp_path / "zipMR.dcm")
    return files


def tell(record_property, what, verdicts):
    """Report the three counts; none may be wrong."""
    wrong = [words for words in verdicts if words not in ("right", "refused")]
    counts = Counter(verdicts)
    count = f"{what}: {counts['right']} read right, {counts['refused']} refused right, {len(wrong)} wrong"
    record_property("count", count)
    assert not wrong, "\n".join(wrong)
    return counts


def test_packaged_files(tmp_path, record_property):
    files = packaged(tmp_path)
    counts = tell(record_property, f"{len(files)} packaged files", [verdict(path) for path in files])
    assert counts["right"] >= 40  # the comparison is not of nothing


def test_packaged_series(record_property):
    """Every series below pydicom's DICOMDIR folders, by its UID, against ITK's series reader."""
    verdicts = []
    root = PYDICOM / "test_files" / "dicomdirtests"
    for folder in sorted({p.parent for p in root.rglob("*") if p.is_file()}):
        try:
            series, _ = list_series(folder, BUDGET)
        except InputError:
            verdicts.append("refused")
            continue
        for one in series:
            if one.problem:
                verdicts.append("refused")
                continue
            reader = sitk.ImageSeriesReader()
            reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder), one.uid, False, True))
            image = reader.Execute()
            volume = read_volume(folder, series=one.uid, frame=0)
            wrong = compare(volume, sitk.GetArrayFromImage(image).T, itk_affine(image))
            verdicts.append(f"{folder.name} {one.number}: {wrong}" if wrong else "right")
    tell(record_property, f"{len(verdicts)} packaged series", verdicts)


def itk_series(folder, image, slope=None):
    """As SimpleITK's own example writes a series (Examples/DicomSeriesFromArray)."""
    folder.mkdir()
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    direction = image.GetDirection()
    shared = [
        ("0008|0060", "CT" if slope else "MR"),
        ("0020|000e", "1.2.826.0.1.3680043.2.1125.1.77"),
        ("0020|0037", "\\".join(str(direction[n]) for n in (0, 3, 6, 1, 4, 7))),
        ("0008|103e", "by SimpleITK"),
        *([("0028|1053", str(slope)), ("0028|1052", "-1024"), ("0028|0100", "16")] if slope else []),
        *([("0028|0101", "16"), ("0028|0102", "15"), ("0028|0103", "1")] if slope else []),  # as int16
    ]
    for k in range(image.GetDepth()):
        plane = image[:, :, k]
        for tag, value in shared:
            plane.SetMetaData(tag, value)
        plane.SetMetaData("0020|0032", "\\".join(map(str, image.TransformIndexToPhysicalPoint((0, 0, k)))))
        plane.SetMetaData("0020|0013", str(99 - k))
        writer.SetFileName(str(folder / f"{(7 * k) % 11}.dcm"))
        writer.Execute(plane)
    return folder


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float64])
@pytest.mark.parametrize("turn", ["straight", "oblique"])
def test_series_written_by_simpleitk(tmp_path, dtype, turn):
    """Of floats ITK stores (value + 1024) / 0.5."""
    slope = 0.5 if dtype == np.float64 else None
    image = sitk.GetImageFromArray(np.random.default_rng(0).integers(0, 200, (9, 14, 12)).astype(dtype))
    image.SetSpacing((0.8, 1.3, 10.0))
    image.SetOrigin((-31.5, 12.25, 80.0))
    if turn == "oblique":
        image.SetDirection(sitk.Euler3DTransform((0, 0, 0), 0.3, -0.2, 0.5).GetMatrix())
    folder = itk_series(tmp_path / "in", image, slope)
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    again = reader.Execute()
    assert compare(read_volume(folder), sitk.GetArrayFromImage(again).T, itk_affine(again)) == ""
    assert again.GetSpacing() == pytest.approx((0.8, 1.3, 10.0))


DCMTK = {
    "implicit": ["dcmconv", "+ti"],
    "big endian": ["dcmconv", "+tb"],
    "deflated": ["dcmconv", "+td"],
    "undefined lengths": ["dcmconv", "-e"],
    "RLE": ["dcmcrle"],
    "JPEG lossless": ["dcmcjpeg", "+e1"],
    "JPEG-LS": ["dcmcjpls"],
    "padded": ["dcmconv", "+p", "512", "64"],
}


def test_files_written_by_dcmtk(tmp_path, record_property):
    if not shutil.which("dcmconv"):
        pytest.skip("dcmtk is not installed (apt-get install dcmtk)")
    verdicts = []
    for name in ("MR_small.dcm", "CT_small.dcm"):
        source = PYDICOM / "test_files" / name
        plain = read_volume(source)
        for kind, command in DCMTK.items():
            path = tmp_path / f"{kind} {name}"
            done = subprocess.run([*command, str(source), str(path)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            volume = read_volume(path)
            same = np.array_equal(volume.voxels, plain.voxels) and np.array_equal(volume.affine, plain.affine)
            verdicts.append(verdict(path) if same else f"{path.name}: not as it was")
    assert tell(record_property, f"{len(verdicts)} files by dcmtk", verdicts)["refused"] == 0
