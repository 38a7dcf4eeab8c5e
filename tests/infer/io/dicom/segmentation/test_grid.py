"""Headers that contradict their positions: strangers must read from the SEG the grid that mona's NIfTI mask lies on."""

import nibabel as nib
import numpy as np
import pydicom
import pytest
from helpers import models
from helpers.dicom_files import decimals, planes, write_enhanced, write_series
from helpers.orientations import rotation
from helpers.seg_readers import READERS, by_highdicom, disagreements
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import generate_uid

from mona_infer.cli.main import app

pytest.importorskip("highdicom")
AXIAL = np.diag([-1.5, -1.25, 10.0, 1.0])
OBLIQUE = AXIAL.copy()
OBLIQUE[:3, :3] = rotation(10, -20, 30) @ np.diag([-1.5, -1.25, 8.0])
OBLIQUE[:3, 3] = 31, -17, 44
SAGITTAL = AXIAL[:, [2, 0, 1, 3]] * [0.1, 1, 3, 1]
TILTED = AXIAL.copy()
TILTED[1, 2] = 3.0  # 16.7 degrees
TAGS = {"StudyInstanceUID": generate_uid(), "FrameOfReferenceUID": generate_uid(), "PatientID": "p1"}


def segment(folder, frame=()):
    models.write(folder / "model.onnx")
    for mask in ("mask.dcm", "mask.nii.gz"):
        words = ["segment", folder / "scan", "--out", folder / mask, "--model", folder / "model.onnx", *frame]
        app([str(word) for word in words], standalone_mode=False)
    image = nib.load(folder / "mask.nii.gz")
    return np.asarray(image.dataobj), image.affine


def jitter(affine):
    """Positions as a scanner rounds them, so that no two gaps are alike."""
    _, _, position = planes(affine)
    return lambda k: decimals(np.add([float(v) for v in position(k)], (0.0, 0.0, 0.03 * (-1) ** k)))


SERIES = {
    "SimpleITK's SpacingBetweenSlices of 1": (AXIAL, {"SpacingBetweenSlices": 1}),
    "both spacings wrong, oblique": (OBLIQUE, {"SpacingBetweenSlices": 1, "SliceThickness": 1.5}),
    "no thickness": (SAGITTAL, {"SliceThickness": None}),
    "thickness 0, spacing negative": (AXIAL, {"SliceThickness": 0, "SpacingBetweenSlices": -10}),
    "thinner than apart": (OBLIQUE, {"SliceThickness": 6}),
    "slices numbered from the far end": (OBLIQUE, {"SpacingBetweenSlices": 1, "InstanceNumber": lambda k: 9 - k}),
    "positions rounded": (AXIAL, {"ImagePositionPatient": jitter(AXIAL), "SpacingBetweenSlices": 1}),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_read_where_its_positions_say(tmp_path, name, reader):
    affine, tags = SERIES[name]
    write_series(tmp_path / "scan", models.scan(), affine, **TAGS, **tags)
    labels, where = segment(tmp_path)
    np.testing.assert_allclose(where, affine, atol=0.07)
    assert disagreements(tmp_path / "mask.dcm", labels, where, reader) == []


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("tags", [{"SliceThickness": 5, "SpacingBetweenSlices": 1}, {"SpacingBetweenSlices": 5}])
def test_a_single_slice_is_as_thick_as_in_the_nifti_mask(tmp_path, tags, reader):
    write_series(tmp_path / "scan", models.scan(shape=(40, 36, 1)), AXIAL, **TAGS, **tags)
    labels, where = segment(tmp_path)
    assert where[2, 2] == 5
    assert disagreements(tmp_path / "mask.dcm", labels, where, reader) == []


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shared", [True, False])
def test_one_multi_frame_file(tmp_path, shared, reader):
    """With its measures in the shared group, or in that of every frame as some writers have it."""
    path = write_enhanced(tmp_path / "scan" / "scan.dcm", models.scan(), OBLIQUE, **TAGS)
    ds = pydicom.dcmread(path)
    group = ds.SharedFunctionalGroupsSequence[0]
    group.PixelMeasuresSequence[0].SpacingBetweenSlices = 1
    if not shared:
        for item in ds.PerFrameFunctionalGroupsSequence:
            item.PixelMeasuresSequence = group.PixelMeasuresSequence
            item.PlaneOrientationSequence = group.PlaneOrientationSequence
        ds.SharedFunctionalGroupsSequence = Sequence([Dataset()])
    ds.save_as(path)
    labels, where = segment(tmp_path)
    assert disagreements(tmp_path / "mask.dcm", labels, where, reader) == []


def test_of_a_tilted_gantry_the_positions_carry_the_shear(tmp_path, capsys):
    """No DICOM tag but the positions can; pydicom-seg and dcmqi build upright volumes only, highdicom refuses."""
    write_series(tmp_path / "scan", models.scan(), TILTED, **TAGS, SpacingBetweenSlices=1)
    _, where = segment(tmp_path)
    np.testing.assert_allclose(where, TILTED, atol=1e-4)
    assert capsys.readouterr().err.count("pydicom-seg and dcmqi ignore the tilt") == 1  # of the SEG, not of the NIfTI
    ds = pydicom.dcmread(tmp_path / "mask.dcm")
    measures = ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    assert float(measures.SpacingBetweenSlices) == pytest.approx(10)  # along the normal
    for item in ds.PerFrameFunctionalGroupsSequence:
        position = np.array(item.PlanePositionSequence[0].ImagePositionPatient, float) * [-1, -1, 1]
        assert position[1] == pytest.approx(0.3 * position[2])
    with pytest.raises(RuntimeError, match="volume"):
        by_highdicom(tmp_path / "mask.dcm")


def test_the_headers_that_were_read_stay_as_they_are(tmp_path):
    from mona_infer.io.dicom.segmentation.write import _sources
    from mona_infer.io.read import read_volume

    write_series(tmp_path / "scan", models.scan(), AXIAL, **TAGS, SpacingBetweenSlices=1, PatientName="Yamada^太郎",
                 SpecificCharacterSet="ISO_IR 192")  # fmt: skip
    volume = read_volume(tmp_path / "scan", origin=True)
    made = _sources(volume)
    assert made[0].SpacingBetweenSlices == 10
    assert made[0].PatientName == "Yamada^太郎"
    assert volume.origin[0][0].SpacingBetweenSlices == 1
