"""NIfTI against nibabel: what is read, what is kept, what is written."""

import gzip

import nibabel as nib
import numpy as np
import pytest

from mona_infer import InputError, read_volume
from mona_infer.io.nifti import write_mask, write_nifti
from mona_infer.io.read import label_ids

AFFINE = np.array([[-1.4, 0.1, 2.0, 90], [0.2, 1.3, -3.0, -120], [0.1, 0.4, 7.0, 33], [0, 0, 0, 1.0]])
DTYPES = ["u1", "i1", "<i2", ">i2", "<u2", "<i4", ">f4", "<f4", "<f8", "<i8"]


def save(path, voxels, affine=AFFINE, cls=nib.Nifti1Image, **header):
    image = cls(voxels, affine, dtype=voxels.dtype)
    for key, value in header.items():
        image.header[key] = value
    nib.save(image, path)
    return path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_voxels_keep_their_stored_type(tmp_path, suffix, dtype):
    voxels = np.random.default_rng(0).integers(0, 100, (5, 6, 7)).astype(dtype)
    volume = read_volume(save(tmp_path / f"scan{suffix}", voxels))
    assert volume.voxels.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(volume.voxels, voxels)
    np.testing.assert_allclose(volume.affine, AFFINE, atol=1e-4)
    np.testing.assert_array_equal(volume.intensities(volume.voxels), voxels.astype(np.float32))


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("cls", [nib.Nifti1Image, nib.Nifti2Image])
def test_a_frame_of_a_cine(tmp_path, suffix, cls):
    voxels = np.random.default_rng(1).integers(0, 99, (4, 5, 3, 6)).astype(np.int16)
    path = save(tmp_path / f"cine{suffix}", voxels, cls=cls)
    for frame in (0, 3, 5):
        np.testing.assert_array_equal(read_volume(path, frame=frame).voxels, voxels[..., frame])
    with pytest.raises(InputError, match=r"6 frames; choose one with --frame 0\.\.5"):
        read_volume(path)
    with pytest.raises(InputError, match="no frame 6"):
        read_volume(path, frame=6)


def test_trailing_axes_of_one_are_dropped(tmp_path):
    path = save(tmp_path / "scan.nii.gz", np.ones((4, 5, 3, 1, 1), np.uint8))
    assert read_volume(path).shape == (4, 5, 3)


def test_slope_and_intercept_are_applied_but_not_stored(tmp_path):
    voxels = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    image = nib.Nifti1Image(voxels, AFFINE)
    image.header.set_slope_inter(2.5, -1024)
    path = tmp_path / "ct.nii"
    nib.save(image, path)
    volume = read_volume(path)
    assert volume.voxels.dtype == np.int16
    expected = nib.load(path).get_fdata()
    np.testing.assert_allclose(volume.intensities(volume.voxels), expected, rtol=1e-6)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("codes", [(1, 0), (0, 2), (1, 4), (0, 0)])
@pytest.mark.parametrize("cls", [nib.Nifti1Image, nib.Nifti2Image])
def test_a_mask_lies_on_its_scan_to_the_bit(tmp_path, suffix, codes, cls):
    """Also where qform and sform disagree, which happens after registration."""
    image = cls(np.zeros((5, 6, 7), np.int16), AFFINE)
    rigid = np.diag([-1.5, 1.4, 7.5, 1.0])
    rigid[:3, 3] = 5, 6, 7
    image.set_qform(rigid, code=codes[0])
    image.set_sform(AFFINE, code=codes[1])
    image.header.set_xyzt_units("mm", "sec")
    nib.save(image, tmp_path / f"scan{suffix}")
    scan = read_volume(tmp_path / f"scan{suffix}")
    labels = np.random.default_rng(2).integers(0, 4, scan.shape).astype(np.uint8)
    write_mask(tmp_path / f"mask{suffix}", scan.with_voxels(labels))
    before, after = nib.load(tmp_path / f"scan{suffix}"), nib.load(tmp_path / f"mask{suffix}")
    np.testing.assert_array_equal(after.affine, before.affine)
    for key in ("qform_code", "sform_code", "pixdim", "quatern_b", "qoffset_x", "srow_x", "srow_z", "xyzt_units"):
        np.testing.assert_array_equal(after.header[key], before.header[key])
    assert type(after.header) is type(before.header)
    assert after.header.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(np.asarray(after.dataobj), labels)


def test_a_mask_of_a_big_endian_scan_and_of_many_classes(tmp_path):
    scan = read_volume(save(tmp_path / "scan.nii", np.zeros((3, 4, 5), ">i2")))
    labels = np.full(scan.shape, 700, np.uint16)
    write_mask(tmp_path / "mask.nii.gz", scan.with_voxels(labels))
    np.testing.assert_array_equal(np.asarray(nib.load(tmp_path / "mask.nii.gz").dataobj), labels)


def test_a_volume_without_a_header_gets_one(tmp_path):
    from mona_infer import Volume

    shear = np.array([[1.0, 0.3, 0, 4], [0, 1, 0, 5], [0, 0, 3, 6], [0, 0, 0, 1]])
    for name, affine in (("oblique", AFFINE), ("sheared", shear)):
        volume = Volume(np.ones((3, 4, 5), np.int16), affine, slope=2.0, intercept=-3.0)
        write_nifti(tmp_path / f"{name}.nii.gz", volume)
        found = nib.load(tmp_path / f"{name}.nii.gz")
        np.testing.assert_allclose(found.affine, affine, atol=1e-5)
        np.testing.assert_array_equal(found.get_fdata(), -1.0)
    assert nib.load(tmp_path / "sheared.nii.gz").header["qform_code"] == 0


def test_the_same_mask_gives_the_same_bytes(tmp_path):
    scan = read_volume(save(tmp_path / "scan.nii.gz", np.ones((4, 4, 4), np.uint8)))
    for name in ("a.nii.gz", "b.nii.gz"):
        write_mask(tmp_path / name, scan)
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    scan = read_volume(save(tmp_path / "scan.nii.gz", np.ones((4, 4, 4), np.uint8)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mask.nii.gz").write_bytes(b"the last good one")

    class Full(np.ndarray):
        def astype(self, *_, **__):
            raise OSError(28, "No space left on device")

    broken = scan.with_voxels(scan.voxels.view(Full))
    with pytest.raises(InputError, match="No space left"):
        write_mask(tmp_path / "out" / "mask.nii.gz", broken)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mask.nii.gz"]
    assert (tmp_path / "out" / "mask.nii.gz").read_bytes() == b"the last good one"


def test_a_checksum_that_does_not_hold_is_noticed(tmp_path):
    path = save(tmp_path / "scan.nii.gz", np.random.default_rng(0).integers(0, 255, (30, 30, 30)).astype(np.uint8))
    damaged = bytearray(path.read_bytes())
    damaged[-6] ^= 1  # in the CRC
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        read_volume(path)


def test_a_bomb_is_refused_before_it_unpacks(tmp_path):
    header = nib.Nifti1Header()
    header.set_data_shape((1024, 1024, 1024))
    header.set_data_dtype(np.uint8)
    path = tmp_path / "bomb.nii.gz"
    zeros = gzip.compress(b"\0" * (16 << 20))  # a gzip file may hold many members
    path.write_bytes(gzip.compress(header.binaryblock + b"\0" * 4) + zeros * 64)
    with pytest.raises(InputError, match=r"from 1\.05 MB to 1\.07 GB"):
        read_volume(path)


def test_an_sform_without_scale_takes_its_millimetres_from_pixdim(tmp_path):
    """ACDC as the challenge ships it: sform diag(-1, -1, 1), qform and pixdim 1.3x1.3x10 mm."""
    image = nib.Nifti1Image(np.zeros((5, 6, 3), np.int16), None)
    image.set_qform(np.diag([-1.3, -1.3, 10.0, 1.0]), code=1)
    image.set_sform(np.diag([-1.0, -1.0, 1.0, 1.0]), code=1)
    nib.save(image, tmp_path / "acdc.nii.gz")
    found = read_volume(tmp_path / "acdc.nii.gz")
    assert found.spacing == pytest.approx((1.3, 1.3, 10.0))
    assert found.affine[0, 0] < 0 < found.affine[2, 2]
    assert "pixdim" in found.notes[0]
    image.set_sform(np.diag([-1.3, -1.3, 10.0, 1.0]), code=1)
    nib.save(image, tmp_path / "mended.nii.gz")
    assert read_volume(tmp_path / "mended.nii.gz").notes == ()


def test_the_budget_is_kept(tmp_path):
    from mona_infer.io.nifti import read_nifti

    path = save(tmp_path / "scan.nii.gz", np.random.default_rng(0).integers(0, 9, (20, 20, 20)).astype(np.int16))
    with pytest.raises(InputError, match="needs"):
        read_nifti(path, budget=10_000)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, np.int64])
def test_label_ids_from_any_type_that_holds_whole_numbers(tmp_path, dtype):
    labels = np.random.default_rng(0).integers(0, 300 if dtype != np.uint8 else 5, (4, 5, 6)).astype(dtype)
    ids = label_ids(read_volume(save(tmp_path / "mask.nii.gz", labels)))
    assert ids.dtype in (np.uint8, np.uint16)
    np.testing.assert_array_equal(ids, labels)


@pytest.mark.parametrize("odd", [0.5, -1.0, np.nan, np.inf, 70000.0])
def test_what_is_no_label_is_refused(tmp_path, odd):
    labels = np.ones((4, 5, 6), np.float32)
    labels[2, 3, 4] = odd
    with pytest.raises(InputError, match="not a label map"):
        label_ids(read_volume(save(tmp_path / "mask.nii.gz", labels)))
