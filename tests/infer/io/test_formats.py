"""One scan in every format: the same mask, the same numbers, in folders too; and masks as NRRD, read back by ITK."""

import json
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.itk_files import itk_volume, itk_write, sitk
from helpers.orientations import rotation

from mona_infer import InputError, read_volume
from mona_infer.cli.main import app
from mona_infer.task import LabelClass

AFFINE = np.eye(4)
AFFINE[:3, :3] = rotation(10, -15, 20) @ np.diag([1.5, 1.4, 7.0])
AFFINE[:3, 3] = 9, -120, 33
FILES = ["scan.nrrd", "scan.nhdr", "scan.mha", "scan.mhd", "scan.hdr"]


def mona(*args):
    app([*map(str, args)], standalone_mode=False)


def put(path, voxels, affine=AFFINE):
    """Every format by its own writer: ITK's, or nibabel's for NIfTI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith((".nii", ".nii.gz", ".hdr")):
        cls = nib.Nifti1Pair if path.suffix == ".hdr" else nib.Nifti1Image
        nib.save(cls(voxels, affine), path.with_suffix(".img") if path.suffix == ".hdr" else path)
    else:
        itk_write(path, voxels, affine, compress=path.suffix != ".mhd")
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    put(tmp_path / "scan.nii.gz", models.scan())
    mona("segment", "scan.nii.gz", "--out", "mask.nii.gz", "--model", "model.onnx", "--stats", "s.json")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_the_mask_does_not_depend_on_the_format_of_the_scan(here, name):
    put(here / "other" / name, models.scan())
    options = ["--model", "model.onnx", "--stats", "t.json", "--reference", "mask.nii.gz"]
    mona("segment", f"other/{name}", "--out", "again.nii.gz", *options)
    first, again = nib.load("mask.nii.gz"), nib.load("again.nii.gz")
    np.testing.assert_array_equal(np.asarray(first.dataobj), np.asarray(again.dataobj))
    np.testing.assert_allclose(first.affine, again.affine, atol=1e-5)
    found, expected = (json.loads((here / f).read_text())["cases"][0] for f in ("t.json", "s.json"))
    assert found["scores"]["LV"]["dsc"] == 1 and found["scores"]["LV"]["asd"] == 0
    for c, entry in expected["classes"].items():
        assert found["classes"][c]["ml"] == pytest.approx(entry["ml"], rel=1e-4)


@pytest.mark.parametrize("out", ["m.nrrd", "m.seg.nrrd"])
def test_a_mask_as_nrrd_is_what_itk_reads(here, out):
    mona("segment", "scan.nii.gz", "--out", out, "--model", "model.onnx")
    voxels, affine = itk_volume(here / out)
    scan = read_volume("scan.nii.gz")
    np.testing.assert_array_equal(voxels, np.asarray(nib.load("mask.nii.gz").dataobj))
    np.testing.assert_allclose(affine, scan.affine, atol=1e-9)
    mine = read_volume(out)
    np.testing.assert_array_equal(mine.voxels, voxels)
    np.testing.assert_array_equal(mine.affine, scan.affine)  # to the bit
    first = (here / out).read_bytes()
    mona("segment", "scan.nii.gz", "--out", out, "--model", "model.onnx", "--overwrite")
    assert (here / out).read_bytes() == first


def test_segments_have_the_names_colours_and_values_that_slicer_looks_for(here):
    odd = LabelClass(700, "left\nventricle:=x", (255, 0, 51))
    classes = (*models.TASK.classes[:3], odd)
    models.write(here / "odd.onnx", replace(models.TASK, classes=classes))
    mona("segment", "scan.nii.gz", "--out", "m.seg.nrrd", "--model", "odd.onnx")
    image = sitk().ReadImage("m.seg.nrrd")
    found = {key: image.GetMetaData(key) for key in image.GetMetaDataKeys()}
    for n, c in enumerate(classes[1:]):
        assert found[f"Segment{n}_Name"] == " ".join(c.name.split())
        assert found[f"Segment{n}_LabelValue"] == str(c.id)
        assert [round(255 * float(v)) for v in found[f"Segment{n}_Color"].split()] == list(c.colour)
        assert found[f"Segment{n}_Layer"] == "0" and found[f"Segment{n}_ID"] == f"Segment_{c.id}"
        assert found[f"Segment{n}_Extent"] == "0 39 0 35 0 4"
    assert "Segment3_ID" not in found
    assert found["Segmentation_MasterRepresentation"] == "Binary labelmap"
    assert found["Segmentation_ContainedRepresentationNames"] == "Binary labelmap|"
    assert set(np.unique(sitk().GetArrayFromImage(image))) == {0, 1, 2, 700}


def test_every_frame_as_nrrd(here):
    frames = np.stack([models.scan(n) for n in range(3)], axis=3)
    nib.save(nib.Nifti1Image(frames, AFFINE), "cine.nii.gz")
    for out in ("m.nii.gz", "m.nrrd"):
        mona("segment", "cine.nii.gz", "--frame", "all", "--out", out, "--model", "model.onnx")
    expected = np.asarray(nib.load("m.nii.gz").dataobj)
    for n in range(3):
        np.testing.assert_array_equal(read_volume("m.nrrd", frame=n).voxels, expected[..., n])
    values = sitk().GetArrayFromImage(sitk().ReadImage("m.nrrd"))  # k j i frame
    np.testing.assert_array_equal(values.transpose(2, 1, 0, 3), expected)
    with pytest.raises(InputError, match=r"a .seg.nrrd holds one frame"):
        mona("segment", "cine.nii.gz", "--frame", "all", "--out", "m.seg.nrrd", "--model", "model.onnx")
    assert not list(here.glob("*.seg.nrrd")) and not list(here.glob(".*nrrd"))


def test_folders_of_mixed_formats(here):
    for name in ("a.nii.gz", "b.nrrd", "c.mha", "d.mhd", "e.hdr", "sub/f.nhdr"):
        put(here / "scans" / name, models.scan(ord(name[-5])))
    mona("segment", "scans", "--out", "masks", "--model", "model.onnx")
    cases = sorted(
        p.relative_to("masks").as_posix() for p in (here / "masks").rglob("*.nii.gz") for p in [p.relative_to(here)]
    )
    assert cases == [f"{c}.nii.gz" for c in ("a", "b", "c", "d", "e", "sub/f")]
    for name in ("a.seg.nrrd", "b.nii.gz", "c_gt.mha", "d.nrrd", "e.mhd"):
        mask = nib.load(f"masks/{name[0]}.nii.gz")
        put(here / "references" / name, np.asarray(mask.dataobj), mask.affine)
    (here / "masks" / "sub" / "f.nii.gz").unlink()
    mona("evaluate", "masks", "references", "--json", "report.json")
    report = json.loads((here / "report.json").read_text())
    assert [case["case"] for case in report["cases"]] == list("abcde")
    assert report["mean"]["dsc"] == 1 and report["mean"]["hd95"] == 0


def test_a_dicom_seg_needs_dicom(here):
    put(here / "b.nrrd", models.scan())
    with pytest.raises(InputError, match=r"b.nrrd is not DICOM, so there is no series"):
        mona("segment", "b.nrrd", "--out", "m.dcm", "--model", "model.onnx")
