"""What mona writes, reads and measures, against programs that share no line with it; `make test-all` prints the counts.

highdicom, pydicom-seg and dcmqi read DICOM-SEG; SimpleITK reads and writes NIfTI and DICOM; nibabel brings files;
MONAI and SimpleITK measure.  `make test-all` installs them (the extra `oracles`).
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import models, seg_readers, sitk_files
from helpers.dicom_files import write_enhanced, write_series
from helpers.orientations import ANGLES, TURNS, restored, rotation
from pydicom.uid import generate_uid

from mona_infer.cli.main import app
from mona_infer.errors import InputError, MissingPart
from mona_infer.evaluation.measure import measure
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.pairing import Case
from mona_infer.io.read import label_ids, read_frames, read_volume
from mona_infer.volume import Volume

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("independent readers")]  # its fixtures are made once
MASKS = ("nii.gz", "nii", "nrrd", "seg.nrrd")  # of `mona segment --format`, as SimpleITK reads them
TYPES = ("uint8", "int16", "uint16", "int32")


def affine_of(angles, spacing=(1.5, 1.25, 8.0), origin=(31, -17, 44)):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) @ np.diag([-1, -1, 1]) @ np.diag(spacing)
    affine[:3, 3] = origin
    return affine


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Series of SimpleITK in four pixel types and eight orientations, turned ones by pydicom, and multi-frame files."""
    pytest.importorskip("SimpleITK")
    folder = tmp_path_factory.mktemp("scans")
    for n, angles in enumerate(ANGLES):
        voxels = models.scan(n, (40 + n, 36 - n, 5 + n))
        for kind in TYPES[n % 2 :: 2]:
            shown = voxels // 4 if kind == "uint8" else voxels
            sitk_files.write_series(folder / f"sitk-{kind}-{n}", shown.astype(kind), affine_of(angles))
        tags = {"StudyInstanceUID": generate_uid(), "FrameOfReferenceUID": generate_uid(), "SpacingBetweenSlices": 1}
        turned = restored(voxels, affine_of(angles), *TURNS[5 * n + 1])
        if np.linalg.det(turned[1][:3, :3]) > 0:  # of a DICOM stack, slices follow the normal
            write_series(folder / f"series-{n}", *turned, **tags)
        write_enhanced(folder / f"enhanced-{n}" / "scan.dcm", voxels, affine_of(angles), **tags)
    return folder


def named(kind):
    """A folder for masks of this kind, whose name does not look like a mask's."""
    return f"as-{kind.replace('.', '-')}"


@pytest.fixture(scope="module")
def masks(scans, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    models.write(folder / "model.onnx")
    for kind in ("dcm", *MASKS):
        words = ["segment", scans, "--out", folder / named(kind), "--format", kind, "--model", folder / "model.onnx"]
        app([str(word) for word in words], standalone_mode=False)
    return folder


def nifti(path):
    found = nib.load(path)
    return np.asarray(found.dataobj), found.affine


def test_series_of_simpleitk_are_read_as_simpleitk_reads_them(scans, record_property):
    folders = sorted(scans.glob("sitk-*"))
    wrong = []
    for folder in folders:
        found, (voxels, affine) = read_volume(folder), sitk_files.read_series(folder)
        same = np.allclose(found.affine, affine, atol=1e-4) and np.array_equal(found.intensities(found.voxels), voxels)
        wrong += [] if same else [folder.name]
    record_property("count", f"DICOM series written and read by SimpleITK: {len(folders)}, wrong {len(wrong)}")
    assert len(folders) == 16
    assert not wrong


@pytest.mark.parametrize("reader", seg_readers.READERS)
def test_dicom_seg(masks, reader, record_property):
    files, wrong = sorted((masks / named("dcm")).iterdir()), []
    for path in files:
        wrong += seg_readers.disagreements(path, *nifti(masks / named("nii.gz") / f"{path.stem}.nii.gz"), reader)
    record_property("count", f"DICOM-SEG by mona, read by {reader}: {len(files)} files, {len(wrong)} disagreements")
    assert len(files) >= 24
    assert not wrong


def test_dicom_seg_is_sound_to_dcmtk(masks, record_property):
    """Not an image to it, but every element is parsed and checked against its dictionary."""
    if shutil.which("dcmdump") is None:
        pytest.skip("DCMTK is not installed (Debian: dcmtk)")
    files, wrong = sorted((masks / named("dcm")).iterdir()), []
    for path in files:
        told = subprocess.run(["dcmdump", path], check=False, capture_output=True)
        wrong += [] if told.returncode == 0 and not told.stderr else [f"{path.name}: {told.stderr[:200]!r}"]
    record_property("count", f"DICOM-SEG by mona, parsed by DCMTK: {len(files)} files, {len(wrong)} complaints")
    assert not wrong


@pytest.mark.parametrize("kind", MASKS)
def test_masks_read_by_simpleitk(masks, kind, record_property):
    sitk = pytest.importorskip("SimpleITK")
    files, wrong = sorted((masks / named(kind)).iterdir()), []
    for path in files:
        voxels, affine = sitk_files.content(sitk.ReadImage(str(path)))
        dicom = masks / named("dcm") / f"{path.name.removesuffix(f'.{kind}')}.dcm"
        seg = on_grid_of(read_volume(dicom), read_volume(path))
        same = np.allclose(affine, seg.affine, atol=1e-3) and np.array_equal(voxels, label_ids(seg))
        wrong += [] if same else [path.name]
    record_property("count", f"masks .{kind}, read by SimpleITK: {len(files)} files, {len(wrong)} disagreements")
    assert len(files) >= 24
    assert not wrong


def by_dcmqi(path, source, labels, affine, kind):
    dcmqi = pytest.importorskip("dcmqi")
    sitk = pytest.importorskip("SimpleITK")
    code = {"CodeValue": "T-D0050", "CodingSchemeDesignator": "SRT", "CodeMeaning": "Tissue"}
    about = {
        "ContentCreatorName": "x",
        "SeriesDescription": "x",
        "SeriesNumber": "300",
        "InstanceNumber": "1",
        "segmentAttributes": [
            [
                {
                    "labelID": int(n),
                    "SegmentLabel": f"class {n}",
                    "SegmentAlgorithmType": "MANUAL",
                    "SegmentedPropertyCategoryCodeSequence": code,
                    "SegmentedPropertyTypeCodeSequence": code,
                }
                for n in np.unique(labels[labels > 0])
            ]
        ],
    }
    path.with_suffix(".json").write_text(json.dumps(about))
    sitk.WriteImage(sitk_files.image(labels, affine), str(path.with_suffix(".nrrd")))
    program = Path(dcmqi.__file__).parent / "bin" / "itkimage2segimage"
    words = ["--inputImageList", path.with_suffix(".nrrd"), "--inputDICOMDirectory", source, "--outputDICOM", path]
    words += ["--inputMetadata", path.with_suffix(".json"), "--segmentationType", kind]
    subprocess.run([program, *words], check=True, capture_output=True)


@pytest.mark.parametrize("kind", ["binary", "labelmap"])
def test_dicom_seg_of_dcmqi_is_read(scans, masks, tmp_path, kind, record_property):
    cases, wrong = sorted(path.name for path in scans.glob("s*")), []
    for case in cases:
        labels, affine = nifti(masks / named("nii.gz") / f"{case}.nii.gz")
        by_dcmqi(tmp_path / f"{case}.dcm", scans / case, labels, affine, kind)
        found = on_grid_of(read_volume(tmp_path / f"{case}.dcm"), Volume(labels, affine))
        wrong += [] if np.array_equal(label_ids(found), labels) else [case]
    record_property("count", f"DICOM-SEG by dcmqi ({kind}), read by mona: {len(cases)} files, {len(wrong)} wrong")
    assert not wrong


def test_nifti_of_simpleitk_is_read(tmp_path, record_property):
    sitk = pytest.importorskip("SimpleITK")
    wrong, count = [], 0
    for n, angles in enumerate(ANGLES):
        for kind in (*TYPES, "int8", "uint32", "float32", "float64"):
            voxels = (models.scan(n, (12, 10, 5)) // 8).astype(kind)
            voxels, affine = restored(voxels, affine_of(angles), *TURNS[(7 * count) % len(TURNS)])
            path = tmp_path / f"{count}.nii.gz"
            if np.linalg.det(np.diag([-1, -1, 1]) @ affine[:3, :3]) < 0:  # SimpleITK has no left-handed images
                voxels, affine = restored(voxels, affine, (0, 1, 2), (False, False, True))
            sitk.WriteImage(sitk_files.image(voxels, affine), str(path))
            found, (theirs, where) = read_volume(path), sitk_files.content(sitk.ReadImage(str(path)))
            same = np.array_equal(found.intensities(found.voxels), theirs) and np.array_equal(theirs, voxels)
            wrong += [] if same and np.allclose(found.affine, where, atol=1e-4) else [path.name]
            count += 1
    record_property("count", f"NIfTI written by SimpleITK, read by mona: {count} files, {len(wrong)} wrong")
    assert not wrong


def blobs(seed, shape=(32, 28, 12)):
    """Two labels that touch, one of them at the border of the image; a second reader's version of them."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        mask = np.zeros(shape, np.uint8)
        for label in (1, 2):
            centre, radius = np.add(rng.uniform(4, 9, 3), (8 * (label - 1), 5, -3)), rng.uniform(4, 8)
            where = np.indices(shape) - centre[:, None, None, None]
            mask[(where**2).sum(axis=0) < radius**2] = label
        made.append(mask)
    return made


def by_monai(a, b, spacing):
    torch, metrics = pytest.importorskip("torch"), pytest.importorskip("monai.metrics")
    a, b = (torch.from_numpy(mask[None, None]) for mask in (a, b))
    one = {"include_background": True, "spacing": spacing}
    return {
        "dsc": metrics.compute_dice(a, b).item(),
        "jaccard": metrics.compute_iou(a, b).item(),
        "asd": metrics.compute_average_surface_distance(a, b, **one).item(),
        "assd": metrics.compute_average_surface_distance(a, b, symmetric=True, **one).item(),
        # Its HD95 is the larger of the two directions' percentiles, mona's (medpy's) pools them: no common number.
        "hd": metrics.compute_hausdorff_distance(a, b, **one).item(),
    }


def by_simpleitk(a, b, spacing):
    sitk = pytest.importorskip("SimpleITK")
    images = [sitk_files.image(mask, np.diag([*spacing, 1.0])) for mask in (a, b)]
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*images)
    # Padded, so that a border at the image's edge is one; distances to the other's border (Maurer) at each border.
    padded = [sitk.ConstantPad(one, [1] * 3, [1] * 3) for one in images]
    borders = [sitk.LabelContour(one, fullyConnected=False) for one in padded]
    far = [
        sitk.GetArrayFromImage(sitk.Abs(sitk.SignedMaurerDistanceMap(one, squaredDistance=False, useImageSpacing=True)))
        for one in borders
    ]
    there = [sitk.GetArrayFromImage(one) > 0 for one in borders]
    to_b, to_a = far[1][there[0]], far[0][there[1]]
    both = np.concatenate([to_b, to_a])
    return {
        "dsc": overlap.GetDiceCoefficient(),
        "jaccard": overlap.GetJaccardCoefficient(),
        "asd": to_b.mean(),
        "assd": both.mean(),
        "hd95": np.percentile(both, 95),
        "hd": both.max(),
    }


@pytest.mark.parametrize("oracle", [by_monai, by_simpleitk])
def test_metrics(tmp_path, oracle, record_property):
    """From files, as `mona evaluate` measures."""
    wrong, count = [], 0
    for seed in range(12):
        spacing = [(1.0, 1.0, 1.0), (1.5, 1.25, 8.0), (0.7, 0.7, 2.5)][seed % 3]
        masks = blobs(seed)
        for name, mask in zip("ab", masks, strict=True):
            nib.save(nib.Nifti1Image(mask, np.diag([*spacing, 1.0])), tmp_path / f"{name}.nii.gz")
        report = measure([Case("a", tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")])
        for label, score in report["cases"][0]["classes"].items():
            theirs = oracle(*((mask == int(label)).astype(np.uint8) for mask in masks), spacing)
            for metric in theirs.keys() & score.keys():
                count += 1
                if score[metric] != pytest.approx(theirs[metric], abs=1e-4):
                    wrong.append(f"{seed} {label} {metric}: {score[metric]} not {theirs[metric]}")
    record_property("count", f"metrics, against {oracle.__name__[3:]}: {count} numbers, {len(wrong)} disagreements")
    assert count >= 96
    assert not wrong


def packaged(*suffixes):
    """Files that nibabel brings for its own tests."""
    folder = Path(nib.__file__).parent
    found = [path for path in folder.rglob("*") if path.is_file() and "data" in path.parts]
    return sorted(path for path in found if path.name.endswith(suffixes))


def same_as_nibabel(path):
    """Whether mona's frames are those of nibabel; None where nibabel has no scan of it."""
    try:
        theirs = nib.load(path)
        data = theirs.get_fdata(dtype=np.float32)
    except Exception:
        return None
    if data.ndim not in (3, 4):
        return None
    frames = [(frame.intensities(frame.voxels), frame.affine) for frame in read_frames(path)]
    data = data if data.ndim == 4 else data[..., None]
    return len(frames) == data.shape[3] and all(
        np.allclose(voxels, data[..., t], rtol=1e-5, equal_nan=True) and np.allclose(affine, theirs.affine, atol=1e-4)
        for t, (voxels, affine) in enumerate(frames)
    )


def test_nibabel_s_own_files(record_property):
    """Read as nibabel does, or refused in a sentence: what mona does not read, and what is no scan."""
    right, refused, wrong = [], [], []
    for path in packaged(""):
        if path.suffix in (".py", ".pyc", ".m", ".rst", ".txt") or path.name.endswith((".dcm", ".dcm.gz")):
            continue
        scan = path.name.endswith((".nii", ".nii.gz")) and not path.name.endswith(".dconn.nii")  # a matrix, no scan
        try:
            same = same_as_nibabel(path)
            if same is None:
                read_volume(path)
            (right if same else wrong).append(path.name)
        except (InputError, MissingPart):
            (wrong if scan else refused).append(path.name)
    words = f"nibabel's packaged files: {len(right)} read right, {len(refused)} refused right, {len(wrong)} wrong"
    record_property("count", words)
    assert {"anatomical.nii", "functional.nii", "example4d.nii.gz", "example_nifti2.nii.gz"} <= set(right)
    assert not wrong


def placed_by_nibabel(path):
    """Intensities [i, j, k] and RAS+ affine by nibabel's wrappers; None where those cannot take the file apart."""
    from nibabel.nicom.dicomwrappers import wrapper_from_file

    theirs = wrapper_from_file(path)
    try:
        data = theirs.get_data()
    except Exception:
        if theirs.is_mosaic:
            return None
        data = theirs.dcm_data.pixel_array  # a codec that nibabel does not ask for
    data = np.asarray(data, np.float32)
    data = data[..., None] if data.ndim == 2 else data
    return data.transpose(1, 0, 2), np.diag([-1.0, -1.0, 1.0, 1.0]) @ theirs.affine[:, [1, 0, 2, 3]]


@pytest.mark.filterwarnings("ignore:The DICOM readers are highly experimental")
def test_nibabel_s_own_dicom(tmp_path, record_property):
    right, refused, wrong = [], [], []
    for path in packaged(".dcm", ".dcm.gz"):
        plain = tmp_path / path.parent.parent.parent.name / path.name.removesuffix(".gz")
        plain.parent.mkdir(exist_ok=True)
        plain.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        try:
            found = read_volume(plain)
        except (InputError, MissingPart):
            refused.append(path.name)
            continue
        data, affine = placed_by_nibabel(plain) or (np.empty((0, 0, 0)), np.eye(4))
        if found.shape[2] > 1 and found.shape == data.shape:  # nibabel's may run the other way
            found = on_grid_of(found, Volume(data, affine))
        same = found.shape == data.shape and np.allclose(found.intensities(found.voxels), data, rtol=1e-5)
        axes = slice(None) if found.shape[2] > 1 else [0, 1, 3]  # the thickness of a single slice is a matter of taste
        (right if same and np.allclose(found.affine[:, axes], affine[:, axes], atol=1e-3) else wrong).append(path.name)
    words = f"nibabel's packaged DICOM: {len(right)} read right, {len(refused)} refused right, {len(wrong)} wrong"
    record_property("count", words)
    assert "philips_mprage.dcm.gz" in right
    # Mosaics that were cut down for the package, to sizes that their headers contradict, and one without pixels.
    assert set(refused) <= {"0.dcm", "1.dcm", "csa_slice_norm.dcm"}
    assert not wrong
