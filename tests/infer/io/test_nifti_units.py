"""NIfTI lengths in metres and microns, and headers without orientation: SimpleITK and nibabel have the last word."""

import json
import struct

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.itk_files import itk_volume

from mona_infer import read_volume
from mona_infer.cli.main import app
from mona_infer.io.nifti import write_mask

AFFINE = np.array([[-1.5, 0, 0, 90], [0, 1.4, 0, -120], [0, 0, 7.0, 33], [0, 0, 0, 1.0]])
UNITS = {"mm": (2, 1), "microns": (3, 1e3), "metres": (1, 1e-3), "nothing": (0, 1)}


def save(path, unit, codes=(1, 1), affine=AFFINE, voxels=None):
    code, factor = UNITS[unit]
    image = nib.Nifti1Image(models.scan() if voxels is None else voxels, None)
    scaled = np.diag([factor] * 3 + [1.0]) @ affine
    image.set_qform(scaled, code=codes[0])
    image.set_sform(scaled, code=codes[1])
    image.header["xyzt_units"] = code | 8  # and seconds, which are none of the space's business
    nib.save(image, path)
    return path


def itk_affine(path):
    return itk_volume(path)[1]


@pytest.mark.parametrize("codes", [(1, 1), (1, 0), (0, 1)])
@pytest.mark.parametrize("unit", UNITS)
def test_the_affine_is_in_millimetres_as_itk_has_it(tmp_path, unit, codes):
    path = save(tmp_path / "scan.nii.gz", unit, codes)
    volume = read_volume(path)
    np.testing.assert_allclose(volume.affine, AFFINE, rtol=1e-5)
    np.testing.assert_allclose(volume.affine, itk_affine(path), rtol=1e-5, atol=1e-5)
    told = [note for note in volume.notes if unit in note]
    assert len(told) == (unit in ("microns", "metres"))


@pytest.mark.parametrize("unit", UNITS)
def test_a_mask_keeps_the_scans_units_and_lies_on_it_for_every_reader(tmp_path, unit):
    scan = save(tmp_path / "scan.nii.gz", unit)
    volume = read_volume(scan)
    write_mask(tmp_path / "mask.nii.gz", volume.with_voxels(np.ones(volume.shape, np.uint8)))
    before, after = nib.load(scan), nib.load(tmp_path / "mask.nii.gz")
    assert before.header["xyzt_units"] == after.header["xyzt_units"]
    np.testing.assert_array_equal(before.affine, after.affine)
    np.testing.assert_array_equal(itk_affine(scan), itk_affine(tmp_path / "mask.nii.gz"))


def test_volumes_areas_and_distances_do_not_depend_on_the_unit(tmp_path, monkeypatch, capsys):
    """They were 138825000000.0 mL in microns and 0.0 mL in metres."""
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    found = {}
    for unit in UNITS:
        save("scan.nii.gz", unit)
        save("reference.nii.gz", "mm", voxels=np.roll((models.scan() // 260).astype(np.uint8), 3, axis=0))
        options = ["--reference", "reference.nii.gz", "--stats", "s.json", "--overwrite", "--model", "model.onnx"]
        app(["segment", "scan.nii.gz", "--out", "mask.nii.gz", *options], standalone_mode=False)
        (case,) = json.loads((tmp_path / "s.json").read_text())["cases"]
        found[unit] = [
            *(entry["ml"] for entry in case["classes"].values()),
            *(value for score in case["scores"].values() for value in score.values()),
        ]
    assert min(found["mm"][:3]) > 1
    for unit, numbers in found.items():
        assert numbers == pytest.approx(found["mm"], rel=1e-4), unit
    assert "warning: scan: the header gives lengths in microns" in capsys.readouterr().err


def test_a_matrix_without_scale_takes_that_of_pixdim_in_its_unit(tmp_path):
    image = nib.Nifti1Image(np.zeros((5, 6, 3), np.int16), None)
    image.set_qform(np.diag([-1300.0, -1300.0, 10000.0, 1.0]), code=1)
    image.set_sform(np.diag([-1.0, -1.0, 1.0, 1.0]), code=1)
    image.header.set_xyzt_units("micron")
    nib.save(image, tmp_path / "scan.nii.gz")
    assert read_volume(tmp_path / "scan.nii.gz").spacing == pytest.approx((1.3, 1.3, 10.0))


def test_an_unknown_unit_is_said(tmp_path):
    path = save(tmp_path / "scan.nii", "mm")
    data = bytearray(path.read_bytes())
    data[123] = 5
    path.write_bytes(data)
    volume = read_volume(path)
    np.testing.assert_allclose(volume.affine, AFFINE, rtol=1e-5)
    assert volume.notes == ("the header gives lengths in an unknown unit (code 5); they are assumed to be millimetres",)


@pytest.mark.parametrize("pixdim", [(1, 1.5, 1.4, 7), (-1, 1.5, 1.4, 7), (1, -1.5, 1.4, 7), (1, -1.5, -1.4, -7)])
def test_no_orientation_is_said_and_read_as_nibabel_does(tmp_path, pixdim):
    path = tmp_path / "scan.nii"
    data = bytearray(nib.Nifti1Image(models.scan(), None).to_bytes())
    struct.pack_into("<4f", data, 76, *pixdim)
    struct.pack_into("<hh", data, 252, 0, 0)
    path.write_bytes(data)
    volume = read_volume(path)
    np.testing.assert_allclose(volume.affine, nib.load(path).affine, rtol=1e-6)
    assert "no orientation (qform and sform codes are 0)" in volume.notes[0]
    assert "left, anterior and superior" in volume.notes[0]
    assert len(volume.notes) == (1 if min(pixdim[1:]) > 0 else 2)
    assert min(pixdim[1:]) > 0 or "negative" in volume.notes[1]
    # What the note says of ITK: left, back, head; and a negative spacing flips.
    signs = np.sign(pixdim[1:]) * (-1, -1, 1)
    np.testing.assert_array_equal(np.sign(np.diag(itk_affine(path))[:3]), signs)
