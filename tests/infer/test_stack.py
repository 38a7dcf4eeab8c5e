"""Read, preprocess, restore, write: a landmark stays where it is in the patient, on every grid."""

import nibabel as nib
import numpy as np
import pydicom
import pytest
from dicom_files import write_series
from orientations import ANGLES, TURNS, restored, rotation

from mona_infer import Task, Volume, read_volume
from mona_infer.nifti import write_mask, write_nifti
from mona_infer.stack import SliceStack
from mona_infer.task import Intensity, LabelClass

CLASSES = (LabelClass(0, "background", (0, 0, 0)), LabelClass(5, "mark", (255, 0, 0)))
TASKS = [
    Task("nearest", CLASSES, size=(48, 40), image_order=0, mask_order=0),
    Task("linear", CLASSES, slices="inferior-superior", size=(48, 40), image_order=1, mask_order=1),
]
SPACINGS = [(1.5, 1.5, 8.0), (1.0, 1.1, 1.2)]


def scan_with_landmark(angles, spacing):
    """A dark volume with one bright block, off every centre, and the world position of its middle."""
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) * spacing
    affine[:3, 3] = -31, 17, 44
    voxels = np.zeros((13, 11, 9), np.int16)
    voxels[7:10, 2:5, 5:8] = 900
    return voxels, affine, affine[:3, :3] @ (8, 3, 6) + affine[:3, 3]


def segment(volume, task):
    """Preprocess and restore around a network that calls everything bright the landmark."""
    stack = SliceStack(volume, task)
    mask = stack.empty_mask()
    for start, batch in stack.batches(4):
        assert batch.shape[1:] == task.size
        stack.restore(mask, start, np.stack([0.5 - batch, batch - 0.5], axis=1))
    return volume.with_voxels(mask)


def centre(path):
    """World position of the mask's middle, by nibabel alone."""
    image = nib.load(path)
    where = np.argwhere(np.asarray(image.dataobj) == 5)
    assert len(where)
    return nib.affines.apply_affine(image.affine, where.mean(axis=0))


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
@pytest.mark.parametrize("angles", ANGLES, ids=str)
@pytest.mark.parametrize("spacing", SPACINGS, ids=str)
def test_nifti_landmark_in_all_48_orders(tmp_path, task, angles, spacing):
    voxels, affine, landmark = scan_with_landmark(angles, spacing)
    masks = []
    for axes, flips in TURNS:
        stored, turned = restored(voxels, affine, axes, flips)
        nib.save(nib.Nifti1Image(stored, turned), tmp_path / "scan.nii")
        mask = segment(read_volume(tmp_path / "scan.nii"), task)
        write_mask(tmp_path / "mask.nii", mask)
        assert np.abs(centre(tmp_path / "mask.nii") - landmark).max() < 0.5 * min(spacing)
        np.testing.assert_array_equal(nib.load(tmp_path / "mask.nii").affine, nib.load(tmp_path / "scan.nii").affine)
        undone = np.argsort(axes)
        back = np.asarray(mask.voxels).transpose(undone)
        masks.append(back[tuple(slice(None, None, -1 if f else None) for f in flips)])
    assert all(np.array_equal(mask, masks[0]) for mask in masks)


@pytest.mark.parametrize("angles", ANGLES[1::2], ids=str)
@pytest.mark.parametrize("spacing", SPACINGS, ids=str)
def test_dicom_landmark_in_all_48_orders(tmp_path, angles, spacing):
    """The landmark's place from the DICOM tags themselves (PS3.3 C.7.6.2.1.1), LPS turned to RAS."""
    voxels, affine, landmark = scan_with_landmark(angles, spacing)
    for n, (axes, flips) in enumerate(TURNS):
        stored, turned = restored(voxels, affine, axes, flips)
        folder = tmp_path / f"scan{n}"
        write_series(folder, stored, turned)
        bright = []
        for path in sorted(folder.iterdir()):
            ds = pydicom.dcmread(path)
            rows, columns = np.nonzero(ds.pixel_array == 900)
            along_row, along_column = np.array(ds.ImageOrientationPatient, float).reshape(2, 3)
            down, across = (float(s) for s in ds.PixelSpacing)
            position = np.array(ds.ImagePositionPatient, float)
            bright += [
                position + along_row * across * c + along_column * down * r for r, c in zip(rows, columns, strict=True)
            ]
        by_tags = np.mean(bright, axis=0) * (-1, -1, 1)
        np.testing.assert_allclose(by_tags, landmark, atol=0.01)
        write_mask(tmp_path / "mask.nii", segment(read_volume(folder), TASKS[0]))
        assert np.abs(centre(tmp_path / "mask.nii") - landmark).max() < 0.5 * min(spacing)


def test_intensities_are_scaled_by_the_tasks_rule():
    voxels = np.random.default_rng(0).normal(100, 300, (12, 10, 4)).astype(np.int16)
    volume = Volume(voxels, np.diag([1.0, 1.0, 8.0, 1.0]), slope=2.0, intercept=-50.0)
    values = voxels.astype(np.float64) * 2 - 50
    for rule, low, high in (
        (Intensity("minmax"), values.min(), values.max()),
        (Intensity("window", -200, 250), -200, 250),
        (Intensity("percentile", 0.5, 99.5), *np.percentile(values, (0.5, 99.5))),
    ):
        task = Task("t", CLASSES, intensity=rule, size=(10, 12))
        stack = SliceStack(volume, task)
        assert (stack.low, stack.high) == pytest.approx((low, high))
        expected = np.clip((values - low) / (high - low), 0, 1)
        np.testing.assert_allclose(stack.read(0, 4), stack.slicing.view(expected), atol=1e-6)


def test_class_indices_become_the_tasks_ids_beyond_255(tmp_path):
    classes = (CLASSES[0], LabelClass(420, "LA", (0, 0, 9)), LabelClass(500, "LV", (0, 9, 0)))
    volume = Volume(np.zeros((6, 5, 2), np.int16), np.diag([1.0, 1.0, 9.0, 1.0]))
    stack = SliceStack(volume, Task("t", classes, size=(5, 6)))
    mask = stack.empty_mask()
    logits = np.zeros((2, 3, 5, 6), np.float32)
    logits[0, 1] = logits[1, 2] = 1
    stack.restore(mask, 0, logits)
    assert mask.dtype == np.uint16
    assert sorted(np.unique(mask)) == [420, 500]
    with pytest.raises(ValueError, match="3 classes, found 2"):
        stack.restore(mask, 0, logits[:, :2])


def test_a_scan_written_and_read_again_is_the_same(tmp_path):
    voxels, affine, _ = scan_with_landmark((10, -20, 30), (1.5, 1.5, 8.0))
    write_nifti(tmp_path / "scan.nii.gz", Volume(voxels, affine))
    found = read_volume(tmp_path / "scan.nii.gz")
    np.testing.assert_array_equal(found.voxels, voxels)
    np.testing.assert_allclose(found.affine, affine, atol=1e-5)
