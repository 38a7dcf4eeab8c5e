"""Read, preprocess, restore, write: a landmark stays where it is in the patient, on every grid."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_series
from helpers.orientations import ANGLES, TURNS, restored, rotation
from scipy.ndimage import map_coordinates

from mona_infer import Task, Volume, read_volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.io.nifti import write_mask, write_nifti
from mona_infer.task import Intensity, LabelClass, centred
from mona_kernels import native

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
        assert batch.shape[1:] == task.input_size
        assert batch.flags.c_contiguous
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


@pytest.mark.parametrize("window", [(42, 34), (43, 33)], ids=["even", "odd"])
@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
@pytest.mark.parametrize("angles", ANGLES[:2], ids=str)
@pytest.mark.parametrize("spacing", SPACINGS, ids=str)
def test_a_window_in_all_48_orders(task, angles, spacing, window):
    """What lies in the window is found as without one, and what is not is the same place in every order."""
    voxels, affine, landmark = scan_with_landmark(angles, spacing)
    frames = []
    for axes, flips in TURNS:
        stored, turned = restored(voxels, affine, axes, flips)
        volume, seen = Volume(stored, turned), replace(task, window=window)
        mask = segment(volume, seen).voxels
        np.testing.assert_array_equal(mask, segment(volume, task).voxels)
        found = nib.affines.apply_affine(turned, np.argwhere(mask == 5).mean(axis=0))
        assert np.abs(found - landmark).max() < 0.5 * min(spacing)
        stack, frame = SliceStack(volume, seen), np.full(stored.shape, 9, np.uint8)
        everywhere = np.ones((len(stack), 1, *window), np.float32)
        stack.restore(frame, 0, np.concatenate([-everywhere, everywhere], axis=1))
        back = frame.transpose(np.argsort(axes))
        frames.append(back[tuple(slice(None, None, -1 if f else None) for f in flips)])
    assert sorted(np.unique(frames[0])) == [0, 5]
    assert all(np.array_equal(frame, frames[0]) for frame in frames)


def upright(shape):
    """A scan whose stored voxels, transposed, are its slices: nothing is turned between a test and the stack."""
    columns, rows, slices = shape
    voxels = np.random.default_rng(sum(shape)).integers(0, 900, (columns, rows, slices)).astype(np.int16)
    return Volume(voxels, np.diag([-1.0, -1.0, 9.0, 1.0]))


FOUR = tuple(LabelClass(n, f"c{n}", (n, n, n)) for n in range(4))
WINDOWS = [(48, 40), (24, 20), (31, 17), (1, 1), (48, 17)]


def seen_through(window, mask_order=0):
    return Task("t", FOUR, size=(48, 40), window=window, image_order=1, mask_order=mask_order)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_window_is_the_centre_of_what_is_read_without_one(window):
    volume = upright((33, 51, 5))
    whole = SliceStack(volume, seen_through(None)).read(1, 4)
    top, left = (48 - window[0]) // 2, (40 - window[1]) // 2
    expected = whole[:, top : top + window[0], left : left + window[1]]
    np.testing.assert_array_equal(SliceStack(volume, seen_through(window)).read(1, 4), expected)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("height", [1e-3, 30.0, 3e38], ids=str)
def test_labels_of_a_window_come_back_with_background_around(order, window, height):
    """At the network's own size nothing is resized: the label inside, 0 outside, whatever the mask held before."""
    volume = upright((40, 48, 3))
    label = np.random.default_rng(1).integers(0, 4, (3, *window))
    logits = np.float32(height) * (label[:, None] == np.arange(4)[:, None, None]).astype(np.float32)
    mask = np.full(volume.shape, 9, np.uint8)
    SliceStack(volume, seen_through(window, order)).restore(mask, 0, logits)
    expected = np.zeros((3, 48, 40), np.uint8)
    expected[:, *centred((48, 40), window)] = label
    np.testing.assert_array_equal(mask.transpose(2, 1, 0), expected)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("native_size", [(51, 33), (96, 81), (200, 20), (13, 17)], ids=str)
@pytest.mark.parametrize("window", WINDOWS[:4], ids=str)
def test_inside_a_window_a_mask_is_that_of_the_whole(order, native_size, window):
    """Up to the centre of the edge pixels nothing tells that there is a window; half a pixel on, all is background."""
    rows, columns = native_size
    volume = upright((columns, rows, 3))
    logits = np.random.default_rng(2).normal(size=(3, 4, 48, 40)).astype(np.float32)
    inner = centred((48, 40), window)
    found = {}
    for name, part in (("whole", None), ("window", window)):
        mask = np.full(volume.shape, 9, np.uint8)
        seen = logits if part is None else logits[:, :, *inner]
        SliceStack(volume, seen_through(part, order)).restore(mask, 0, seen)
        found[name] = mask.transpose(2, 1, 0)
    at = [np.arange(n) * (size - 1) / (n - 1) for n, size in zip(native_size, (48, 40), strict=True)]

    def within(beyond):
        """Pixels of the scan that are at most so far beyond the centres of the window's edge pixels."""
        return np.logical_and.outer(
            *((p >= s.start - beyond) & (p <= s.stop - 1 + beyond) for p, s in zip(at, inner, strict=True))
        )

    centres, ends, out = within(1e-9), within(0.5 - 1e-9), ~within(0.5 + 1e-9)
    np.testing.assert_array_equal(found["window"][:, centres], found["whole"][:, centres])
    assert not found["window"][:, out].any()
    if order == 0:
        np.testing.assert_array_equal(found["window"][:, ends], found["whole"][:, ends])
    else:  # to the end of the edge pixels what is at their centres goes on
        clipped = [np.clip(p, s.start, s.stop - 1) for p, s in zip(at, inner, strict=True)]
        places = np.stack(np.meshgrid(*clipped, indexing="ij"))
        linear = [[map_coordinates(plane, places, order=1, mode="nearest") for plane in item] for item in logits]
        *_, second, best = np.sort(linear, axis=1).swapaxes(0, 1)
        clear = ends & (best - second > 1e-4)  # elsewhere float32 may decide otherwise
        np.testing.assert_array_equal(found["window"][clear], np.argmax(linear, axis=1)[clear])


def test_without_a_window_logits_are_handed_on_as_they_are(monkeypatch):
    """The very arrays: no copy, no padding, and so no bit of a difference."""
    stack, original, given = SliceStack(upright((33, 51, 3)), seen_through(None, 1)), native.argmax_resized, []

    def watched(logits, size, order):
        given.append(logits)
        return original(logits, size, order=order)

    monkeypatch.setattr(native, "argmax_resized", watched)
    logits = np.random.default_rng(3).normal(size=(3, 4, 48, 40)).astype(np.float32)
    mask = stack.empty_mask()
    stack.restore(mask, 0, logits)
    assert given[0] is logits
    np.testing.assert_array_equal(mask.transpose(2, 1, 0), original(logits, (51, 33), order=1))


def test_logits_that_are_not_the_windows_are_refused():
    stack = SliceStack(upright((33, 51, 3)), seen_through((24, 20)))
    with pytest.raises(ValueError, match=r"window \(24, 20\), found \(48, 40\)"):
        stack.restore(stack.empty_mask(), 0, np.zeros((3, 4, 48, 40), np.float32))


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
