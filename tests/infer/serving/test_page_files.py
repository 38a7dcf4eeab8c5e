"""A label that the page saves is the scan's own grid to the voxel: its NIfTI modules, run by Node, against nibabel."""

import itertools
import shutil
import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers.orientations import ANGLES, TURNS, restored, rotation

STATIC = Path(__file__).parents[3] / "mona_infer/serving/static"
SCRIPT = Path(__file__).parents[2] / "helpers/page/round_trip.mjs"
SHAPE = (7, 5, 4)

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def run(jobs):
    """[(scan, label, world, out)] through the page's modules, in one start of Node."""
    command = ["node", SCRIPT, STATIC, *itertools.chain(*jobs)]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def files(folder, image):
    """A scan, a label of its shape, and names for the two results."""
    ids = np.random.default_rng(3).integers(0, 4, image.shape[:3]).astype(np.uint8)
    scan, label = folder / "scan.nii.gz", folder / "label.nii.gz"
    nib.save(image, scan)
    nib.save(type(image)(ids, image.affine), label)
    return ids, (scan, label, folder / "world", folder / "out.nii.gz")


def scan_of(axes, flips, angles, kind=np.int16, byteorder="<"):
    values = np.random.default_rng(1).integers(-500, 500, SHAPE)
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) @ np.diag([1.3, 1.6, 8.0])
    affine[:3, 3] = (-40, 12.5, 300)
    voxels, affine = restored(values, affine, axes, flips)
    image = nib.Nifti1Image(voxels.astype(np.dtype(kind).newbyteorder(byteorder)), affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(affine, 1)
    image.set_sform(affine, 2)
    return nib.Nifti1Image(image.get_fdata().astype(kind), affine, image.header.as_byteswapped(byteorder))


def same_grid(saved, scan):
    """Every field that says where a voxel lies, bit for bit."""
    for field in ("pixdim", "qform_code", "sform_code", "quatern_b", "quatern_c", "quatern_d", "qoffset_x", "qoffset_y",
                  "qoffset_z", "srow_x", "srow_y", "srow_z", "xyzt_units"):  # fmt: skip
        assert np.array_equal(saved.header[field], scan.header[field]), field
    assert saved.shape == scan.shape[:3]


@pytest.mark.parametrize("angles", ANGLES[:2])
def test_all_48_orders_save_the_scans_own_grid_to_the_voxel(tmp_path, angles):
    cases = []
    for n, (axes, flips) in enumerate(TURNS):
        (folder := tmp_path / str(n)).mkdir()
        image = scan_of(axes, flips, angles)
        cases.append(files(folder, image))
    run([job for _, job in cases])
    for ids, (scan, _, world, out) in cases:
        saved, stored = nib.load(out), nib.load(scan)
        same_grid(saved, stored)
        assert saved.get_data_dtype() == np.uint8
        assert np.array_equal(np.asarray(saved.dataobj), ids)
        # Oblique ones too: nibabel turns to the closest axes, as NiiVue does.
        expected = nib.as_closest_canonical(stored).get_fdata()
        assert np.array_equal(np.fromfile(world).reshape(expected.shape, order="F"), expected)


def test_other_types_and_byte_orders(tmp_path):
    cases = []
    for kind, byteorder in itertools.product((np.uint8, np.float32, np.float64, np.uint16, np.int32), "<>"):
        (folder := tmp_path / f"{kind.__name__}{byteorder == '<'}").mkdir()
        image = scan_of((2, 0, 1), (True, False, True), ANGLES[1], kind, byteorder)
        cases.append((byteorder, *files(folder, image)))
    run([job for *_, job in cases])
    for byteorder, ids, (scan, _, world, out) in cases:
        stored, saved = nib.load(scan), nib.load(out)
        assert stored.header.endianness == byteorder
        same_grid(saved, stored)
        assert np.array_equal(np.asarray(saved.dataobj), ids)
        expected = np.asarray(nib.as_closest_canonical(stored).dataobj)
        assert np.array_equal(np.fromfile(world).reshape(expected.shape, order="F"), expected)


def test_nifti_2_a_cine_and_ids_above_255(tmp_path):
    affine = np.diag([-1.5, 2.0, 9.0, 1.0])
    values = np.random.default_rng(0).integers(0, 99, (*SHAPE, 3)).astype(np.int16)
    image = nib.Nifti2Image(values, affine)
    image.header["descrip"] = b"Doe^Jane"
    ids = np.random.default_rng(3).choice([0, 3, 820], SHAPE).astype(np.uint16)
    scan, label = tmp_path / "scan.nii", tmp_path / "label.nii.gz"
    nib.save(image, scan)
    nib.save(nib.Nifti1Image(ids, affine), label)
    run([(scan, label, tmp_path / "world", tmp_path / "out.nii.gz")])
    saved = nib.load(tmp_path / "out.nii.gz")
    assert isinstance(saved, nib.Nifti2Image)
    assert saved.shape == SHAPE
    assert np.array_equal(saved.affine, affine)
    assert np.array_equal(np.asarray(saved.dataobj), ids)
    assert b"Doe" not in saved.header.binaryblock  # free text is not carried into the label


def test_only_a_qform_places_the_scan(tmp_path):
    image = scan_of((1, 2, 0), (False, True, True), ANGLES[1])
    image.header["sform_code"] = 0
    ids, job = files(tmp_path, image)
    run([job])
    stored = nib.load(job[0])
    assert stored.header["sform_code"] == 0
    same_grid(nib.load(job[3]), stored)
    expected = nib.as_closest_canonical(stored).get_fdata()
    assert np.array_equal(np.fromfile(job[2]).reshape(expected.shape, order="F"), expected)
    assert np.array_equal(np.asarray(nib.load(job[3]).dataobj), ids)
