"""The NIfTI header by hand against nibabel's: every field, every kind of geometry, both byte orders."""

import nibabel as nib
import numpy as np
import pytest
from helpers.orientations import ANGLES, rotation

from mona_infer.io.nifti_header import LAYOUTS, Header

HEADERS = {348: nib.Nifti1Header, 540: nib.Nifti2Header}


@pytest.mark.parametrize("size", HEADERS)
@pytest.mark.parametrize("order", "<>")
def test_every_field_is_where_nibabel_has_it(size, order):
    block = np.random.default_rng(0).integers(1, 120, size, np.uint8)
    block[:4] = np.frombuffer(size.to_bytes(4, "little" if order == "<" else "big"), np.uint8)
    ours, theirs = Header.read(block.tobytes()), HEADERS[size](block.tobytes(), endianness=order, check=False)
    assert set(LAYOUTS[size].names) == set(theirs.keys())
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert bytes(ours) == block.tobytes()


@pytest.mark.parametrize("size", HEADERS)
@pytest.mark.parametrize("codes", [(0, 0), (1, 0), (0, 1), (2, 3)])
@pytest.mark.parametrize("flip", [1, -1])
@pytest.mark.parametrize("angles", ANGLES, ids=str)
def test_affines(size, codes, flip, angles):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) @ np.diag([1.4, 1.3, 8.0 * flip])
    affine[:3, 3] = 5, -7, 11
    theirs = HEADERS[size]()
    theirs.set_data_shape((5, 6, 7))
    theirs.set_qform(affine, code=codes[0])
    theirs.set_sform(affine + 0.25 * np.eye(4)[:, [0, 1, 2, 2]], code=codes[1])
    ours = Header.read(theirs.binaryblock)
    np.testing.assert_allclose(ours.affine(), theirs.get_best_affine(), atol=1e-5)
    made = Header.empty(size)
    made.set_affine(affine)
    assert made["qform_code"] == 1
    read = HEADERS[size](bytes(made), check=False)
    np.testing.assert_allclose(read.get_qform(), affine, atol=1e-4)
    np.testing.assert_allclose(read.get_sform(), affine, atol=1e-6 if size == 540 else 1e-5)


def test_what_is_no_header_and_what_is_no_geometry():
    assert Header.read(b"\0" * 348) is None
    assert Header.read(np.full(540, 7, np.uint8).tobytes()) is None
    header = Header.empty(348)
    header["qform_code"] = 1
    for name, value in (("quatern_b", 2.0), ("quatern_b", np.nan)):
        header[name] = value
        with pytest.raises(ValueError, match="quaternion"):
            header.affine()
    header["quatern_b"] = 0
    header["pixdim"][2] = -1
    with pytest.raises(ValueError, match="negative"):
        header.affine()
