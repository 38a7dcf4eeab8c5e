"""Voxels and header in two files: NIfTI pairs and Analyze 7.5, as nibabel reads them."""

import gzip

import nibabel as nib
import numpy as np
import pytest
from helpers.dicom_files import write_series

from mona_infer import InputError, read_volume
from mona_infer.io.nifti import write_mask
from mona_infer.segmenting.jobs import find_jobs

VOXELS = np.random.default_rng(0).integers(-99, 99, (5, 6, 7)).astype(np.int16)
AFFINE = np.array([[-1.4, 0.1, 0, 90], [0.1, 1.3, 0, -120], [0, 0, 7.0, 33], [0, 0, 0, 1.0]])
KINDS = {
    "nifti": (nib.Nifti1Pair, AFFINE),
    "nifti-2": (nib.Nifti2Pair, AFFINE),
    "analyze": (nib.AnalyzeImage, np.diag([-1.4, 1.3, 7.0, 1.0])),
    "spm": (nib.Spm99AnalyzeImage, nib.affines.from_matvec(np.diag([-1.4, 1.3, 7.0]), [2.8, -3.9, -14])),
}


def save(folder, kind, voxels=VOXELS):
    cls, affine = KINDS[kind]
    nib.save(cls(voxels, affine), folder / "scan.img")
    (folder / "scan.mat").unlink(missing_ok=True)  # SPM's own file of the matrix, which says no more here
    return folder / "scan.hdr"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_is_read_as_nibabel_does_by_either_name(tmp_path, kind):
    header = save(tmp_path, kind)
    expected = nib.load(header)
    for path in (header, tmp_path / "scan.img"):
        volume = read_volume(path)
        np.testing.assert_array_equal(volume.voxels, np.asarray(expected.dataobj))
        np.testing.assert_allclose(volume.affine, expected.affine, atol=1e-5)
        assert ("Analyze 7.5 has no orientation" in " ".join(volume.notes)) == (kind in ("analyze", "spm"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", "<>")
def test_byte_orders_frames_and_compression(tmp_path, kind, order):
    frames = np.stack([VOXELS, VOXELS + 1], axis=3)
    cls, affine = KINDS[kind]
    image = cls(frames, affine, cls.header_class(endianness=order))
    image.set_data_dtype(np.dtype(np.int16).newbyteorder(order))
    nib.save(image, tmp_path / "scan.img")
    for packed in (False, True):
        if packed:
            for end in ("hdr", "img"):
                plain = tmp_path / f"scan.{end}"
                (tmp_path / f"scan.{end}.gz").write_bytes(gzip.compress(plain.read_bytes()))
                plain.unlink()
        path = tmp_path / ("scan.hdr.gz" if packed else "scan.hdr")
        for n in range(2):
            np.testing.assert_array_equal(read_volume(path, frame=n).voxels, frames[..., n])


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_a_pair_is_one_file_on_the_same_grid(tmp_path, kind):
    header = save(tmp_path, kind)
    volume = read_volume(header)
    write_mask(tmp_path / "mask.nii.gz", volume.with_voxels(np.ones(volume.shape, np.uint8)))
    np.testing.assert_allclose(nib.load(tmp_path / "mask.nii.gz").affine, nib.load(header).affine, atol=1e-5)


def test_half_a_pair_and_others_are_refused_in_words(tmp_path):
    header = save(tmp_path, "nifti")
    data = header.read_bytes()
    (tmp_path / "scan.img").rename(tmp_path / "other.img")
    with pytest.raises(InputError, match=r"scan.hdr is half of a pair: scan.img is not next to it"):
        read_volume(header)
    with pytest.raises(InputError, match=r"other.img is half of a pair: other.hdr is not next to it"):
        read_volume(tmp_path / "other.img")
    (tmp_path / "other.hdr").write_bytes(data.replace(b"ni1", b"n+1"))
    with pytest.raises(InputError, match=r"rename it to other.nii"):
        read_volume(tmp_path / "other.hdr")
    (tmp_path / "other.hdr").write_bytes(b"#?RADIANCE\n" + bytes(400))
    with pytest.raises(InputError, match="not NIfTI"):
        read_volume(tmp_path / "other.hdr")
    (tmp_path / "other.hdr").write_bytes(data)
    (tmp_path / "other.img").write_bytes(bytes(100))
    with pytest.raises(InputError, match=r"other.img is truncated or its header is wrong"):
        read_volume(tmp_path / "other.hdr")


def test_a_pair_in_a_folder_is_one_case(tmp_path):
    (tmp_path / "scans").mkdir()
    save(tmp_path / "scans", "analyze")
    jobs, _ = find_jobs(tmp_path / "scans", tmp_path / "masks")
    assert [(job.name, job.scan.name) for job in jobs] == [("scan", "scan.hdr")]


def test_a_dicom_file_may_be_called_img(tmp_path):
    write_series(tmp_path / "series", VOXELS, np.diag([-1.5, -1.4, 7.0, 1.0]))
    one = sorted((tmp_path / "series").iterdir())[0]
    expected = read_volume(one).voxels
    np.testing.assert_array_equal(read_volume(one.rename(tmp_path / "IM0001.img")).voxels, expected)
