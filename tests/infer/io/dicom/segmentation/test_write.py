"""DICOM-SEG, read back by pydicom and by highdicom: every voxel lies where the NIfTI mask says."""

import builtins
from dataclasses import replace

import nibabel as nib
import numpy as np
import pydicom
import pytest
from helpers import models
from helpers.dicom_files import write_enhanced, write_series
from helpers.orientations import rotation
from pydicom.uid import generate_uid

from mona_infer.cli.main import app
from mona_infer.errors import CheckFailed, InputError, MissingPart
from mona_infer.io.dicom.segmentation.write import CONCEPTS, check_origin
from mona_infer.io.read import read_volume

AFFINE = np.eye(4)
AFFINE[:3, :3] = rotation(10, -20, 30) @ np.diag([-1.5, -1.5, 8.0])
AFFINE[:3, 3] = 31, -17, 44
TAGS = {
    "StudyInstanceUID": generate_uid(),
    "FrameOfReferenceUID": generate_uid(),
    "PatientID": "p1",
    "StudyDate": "20200102",
}


def mona(*args):
    return app(["segment", *map(str, args), "--model", "model.onnx"], standalone_mode=False)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    return tmp_path


def world_of_seg(path):
    """Segment label -> millimetres (RAS) of every pixel that is set, by the tags of PS3.3 C.7.6.16.2."""
    ds = pydicom.dcmread(path)
    labels = {item.SegmentNumber: item.SegmentLabel for item in ds.SegmentSequence}
    shared = ds.SharedFunctionalGroupsSequence[0]
    found = {label: [] for label in labels.values()}
    pixels = ds.pixel_array.reshape(-1, ds.Rows, ds.Columns)
    for item, plane in zip(ds.PerFrameFunctionalGroupsSequence, pixels, strict=True):
        both = {element.keyword: element.value[0] for part in (shared, item) for element in part}
        x, y = np.array(both["PlaneOrientationSequence"].ImageOrientationPatient, float).reshape(2, 3)
        down, across = map(float, both["PixelMeasuresSequence"].PixelSpacing)
        origin = np.array(both["PlanePositionSequence"].ImagePositionPatient, float)
        rows, columns = np.nonzero(plane)
        places = origin + columns[:, None] * across * x + rows[:, None] * down * y
        found[labels[both["SegmentIdentificationSequence"].ReferencedSegmentNumber]] += list(places * (-1, -1, 1))
    return {label: np.array(places).reshape(-1, 3) for label, places in found.items()}, ds


def world_of_nifti(path, label):
    image = nib.load(path)
    return nib.affines.apply_affine(image.affine, np.argwhere(np.asarray(image.dataobj) == label))


def same_places(a, b):
    assert len(a) == len(b) > 0
    order = [np.lexsort(np.round(places, 1).T) for places in (a, b)]
    np.testing.assert_allclose(a[order[0]], b[order[1]], atol=0.02)


def check(seg, nifti, sources):
    found, ds = world_of_seg(seg)
    for n, label in enumerate(("RV", "Myo", "LV"), start=1):
        same_places(found[label], world_of_nifti(nifti, n))
    assert ds.Modality == "SEG"
    for word in ("StudyInstanceUID", "FrameOfReferenceUID", "PatientID"):
        assert ds[word].value == sources[0][word].value
    (series,) = ds.ReferencedSeriesSequence
    assert series.SeriesInstanceUID == sources[0].SeriesInstanceUID
    assert {i.ReferencedSOPInstanceUID for i in series.ReferencedInstanceSequence} == {
        s.SOPInstanceUID for s in sources
    }
    return ds


def test_a_series_of_single_frames(here):
    import highdicom

    files = write_series(here / "series", models.scan(), AFFINE, **TAGS)
    mona("series", "--out", "mask.dcm")
    mona("series", "--out", "mask.nii.gz")
    ds = check("mask.dcm", "mask.nii.gz", [pydicom.dcmread(path) for path in files])
    red = highdicom.color.CIELabColor.from_rgb(*models.TASK.classes[3].colour)
    assert list(ds.SegmentSequence[2].RecommendedDisplayCIELabValue) == list(red.value)
    assert ds.SegmentSequence[2].SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Left ventricle"
    # each frame names the very slice it lies on
    by_uid = {pydicom.dcmread(path).SOPInstanceUID: pydicom.dcmread(path).ImagePositionPatient for path in files}
    for item in ds.PerFrameFunctionalGroupsSequence:
        (derived,) = item.DerivationImageSequence
        (source,) = derived.SourceImageSequence
        place = item.PlanePositionSequence[0].ImagePositionPatient
        np.testing.assert_allclose(by_uid[source.ReferencedSOPInstanceUID], place, atol=1e-4)
    volume = highdicom.seg.segread("mask.dcm").get_volume(combine_segments=True)
    lps = nib.affines.apply_affine(volume.affine, np.argwhere(volume.array == 3))
    same_places(lps * (-1, -1, 1), world_of_nifti("mask.nii.gz", 3))


def test_one_multi_frame_file_and_a_frame_of_a_cine(here):
    write_enhanced(here / "one" / "scan.dcm", models.scan(), AFFINE, **TAGS)
    mona("one", "--out", "mask.dcm")
    mona("one", "--out", "mask.nii.gz")
    check("mask.dcm", "mask.nii.gz", [pydicom.dcmread(here / "one" / "scan.dcm")])
    cine = np.stack([models.scan(seed) for seed in range(3)], axis=3)
    write_enhanced(here / "cine" / "scan.dcm", cine, AFFINE, **TAGS)
    mona("cine", "--out", "frame.dcm", "--frame", 1)
    mona("cine", "--out", "frame.nii.gz", "--frame", 1)
    source = pydicom.dcmread(here / "cine" / "scan.dcm")
    ds = check("frame.dcm", "frame.nii.gz", [source])
    for item in ds.PerFrameFunctionalGroupsSequence:  # its number in the file, which holds three times
        number = item.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber
        origin = source.PerFrameFunctionalGroupsSequence[number - 1]
        assert origin.FrameContentSequence[0].TemporalPositionIndex == 2
        places = [i.PlanePositionSequence[0].ImagePositionPatient for i in (origin, item)]
        np.testing.assert_allclose(*places, atol=1e-4)
    with pytest.raises(InputError, match="a DICOM-SEG holds one frame"):
        mona("cine", "--out", "all.dcm", "--frame", "all")


def test_a_mask_of_nothing_is_still_a_segmentation(here):
    write_series(here / "series", np.zeros((12, 10, 4), np.int16), AFFINE, **TAGS)
    mona("series", "--out", "mask.dcm")
    found, _ = world_of_seg("mask.dcm")
    assert not any(len(places) for places in found.values())


@pytest.mark.parametrize("absent", ["StudyInstanceUID", "FrameOfReferenceUID"])
def test_a_series_that_cannot_be_referred_to_is_refused_before_the_network(here, absent):
    write_series(here / "series", models.scan(), AFFINE, **{k: v for k, v in TAGS.items() if k != absent})
    with pytest.raises(InputError, match=rf"needs its {absent}"):
        mona("series", "--out", "mask.dcm")
    assert not (here / "mask.dcm").exists()


def test_slices_that_no_frame_number_tells_apart_are_refused(here):
    for k in range(3):  # enhanced files of one frame each
        moved = AFFINE.copy()
        moved[:3, 3] += k * AFFINE[:3, 2]
        same = {"SeriesInstanceUID": "1.2.3"}
        write_enhanced(here / "files" / f"{k}.dcm", models.scan(k)[:, :, :1], moved, **TAGS, **same)
    with pytest.raises(InputError, match=r"spread over 3 multi-frame files.*write its mask as \.nii\.gz"):
        mona("files", "--out", "mask.dcm")
    write_series(here / "series", models.scan(), AFFINE, **TAGS)
    volume = read_volume(here / "series", origin=True)
    mosaic = replace(volume, origin=tuple((volume.origin[0][0], 0) for _ in volume.origin))
    with pytest.raises(InputError, match="tiles of one image"):
        check_origin(mosaic)


def test_nifti_has_no_series_to_refer_to(here):
    nib.save(nib.Nifti1Image(models.scan(), AFFINE), "scan.nii.gz")
    with pytest.raises(InputError, match=r"scan.nii.gz is NIfTI.*\.nii\.gz name"):
        mona("scan.nii.gz", "--out", "mask.dcm")


def test_a_folder_of_series(here, capsys):
    """One .dcm for each DICOM case; a NIfTI case fails in words, and the others are done."""
    for case in ("p1", "p2"):
        write_series(here / "scans" / case, models.scan(), AFFINE, **TAGS)
    with pytest.raises(InputError, match=r"unknown --format 'dicom'; choose one of nii\.gz, nii, seg\.nrrd, nrrd, dcm"):
        mona("scans", "--out", "masks", "--format", "dicom")
    with pytest.raises(InputError, match=r"contradicts --out p1\.nii\.gz"):
        mona("scans/p1", "--out", "p1.nii.gz", "--format", "dcm")
    mona("scans", "--out", "masks", "--format", "dcm")
    mona("scans/p2", "--out", "p2.nii.gz")
    check("masks/p2.dcm", "p2.nii.gz", [pydicom.dcmread(path) for path in sorted((here / "scans" / "p2").iterdir())])
    nib.save(nib.Nifti1Image(models.scan(), AFFINE), here / "scans" / "p3.nii.gz")
    capsys.readouterr()
    with pytest.raises(CheckFailed, match=r"1 of 3 cases failed \(p3\)"):
        mona("scans", "--out", "masks", "--format", "dcm")
    told = capsys.readouterr()
    assert (
        "p3.nii.gz is not DICOM: there is no series for a DICOM-SEG to refer to; write its mask as .nii.gz" in told.err
    )
    assert "0 segmented, 2 had a mask already, 1 failed" in told.out
    assert sorted(path.name for path in (here / "masks").iterdir()) == ["p1.dcm", "p2.dcm"]
    mona("scans", "--out", "nifti", "--format", "nii")
    assert sorted(path.name for path in (here / "nifti").iterdir()) == ["p1.nii", "p2.nii", "p3.nii"]


def test_without_highdicom_the_command_that_installs_it(here, monkeypatch):
    write_series(here / "series", models.scan(), AFFINE, **TAGS)
    original = builtins.__import__

    def absent(name, *args, **options):
        if name == "highdicom":
            raise ImportError(name)
        return original(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPart, match=r'pip install "highdicom'):
        mona("series", "--out", "mask.dcm")
    assert not (here / "mask.dcm").exists()


def test_the_dictionary_knows_every_concept():
    from pydicom.sr.codedict import codes

    for concept in CONCEPTS.values():
        assert getattr(codes.SCT, concept).value
