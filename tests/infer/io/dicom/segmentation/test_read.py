"""DICOM Segmentations read as masks: mona's own and others', on the grid of a reference, or refused in a sentence."""

import json
from dataclasses import replace

import nibabel as nib
import numpy as np
import pydicom
import pytest
from helpers import models
from helpers.dicom_files import write_series
from helpers.orientations import rotation
from pydicom.uid import DeflatedExplicitVRLittleEndian, RLELossless, generate_uid

from mona_infer.cli.main import app
from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of, on_one_grid
from mona_infer.io.read import label_ids, read_frames, read_volume
from mona_infer.system.memory_budget import TooLarge
from mona_infer.task import LabelClass
from mona_infer.volume import Volume

highdicom = pytest.importorskip("highdicom")
AFFINE = np.eye(4)
AFFINE[:3, :3] = rotation(10, -20, 30) @ np.diag([-1.5, -1.25, 8.0])
AFFINE[:3, 3] = 31, -17, 44
TAGS = {
    "StudyInstanceUID": generate_uid(),
    "FrameOfReferenceUID": generate_uid(),
    **dict.fromkeys(("PatientID", "PatientName", "PatientBirthDate", "PatientSex"), ""),
    **dict.fromkeys(("AccessionNumber", "StudyID", "StudyDate", "StudyTime"), ""),
    "SliceThickness": 8,
}


def labels(shape=(13, 11, 9), seed=0):
    """Three labels (odd sizes: no frame starts at a byte), with empty slices at both ends and in between."""
    mask = np.random.default_rng(seed).integers(0, 4, shape).astype(np.uint8)
    mask[:, :, [0, 1, 4, shape[2] - 1]] = 0
    return mask


def described(*names):
    return [
        highdicom.seg.SegmentDescription(
            n,
            name,
            pydicom.sr.codedict.codes.SCT.Organ,
            pydicom.sr.codedict.codes.SCT.Liver,
            algorithm_type="MANUAL",
        )
        for n, name in enumerate(names, start=1)
    ]


def write_seg(folder, pixels, kind="BINARY", names=("a", "b", "c"), affine=AFFINE, compressed=False, **options):
    """As highdicom writes it; `pixels` are i j k or i j k segments."""
    files = write_series(folder / "source", pixels[:, :, :, 0] if pixels.ndim == 4 else pixels, affine, **TAGS)
    seg = highdicom.seg.Segmentation(
        source_images=[pydicom.dcmread(file) for file in files],
        pixel_array=pixels.transpose(2, 1, 0, *range(3, pixels.ndim)),
        segmentation_type=kind,
        segment_descriptions=described(*names),
        **dict.fromkeys(("series_instance_uid", "sop_instance_uid"), generate_uid()),
        **dict.fromkeys(("series_number", "instance_number"), 1),
        **dict.fromkeys(("manufacturer", "manufacturer_model_name", "software_versions", "device_serial_number"), "x"),
        **options,
    )
    if compressed:
        seg.compress(RLELossless, encoding_plugin="pydicom", generate_instance_uid=False)  # GDCM's dies of odd sizes
    seg.save_as(folder / "seg.dcm")
    return folder / "seg.dcm"


def reference(mask, affine=AFFINE):
    return Volume(np.asfortranarray(mask), affine, source="reference")


def check(path, mask):
    found = on_grid_of(read_volume(path), reference(mask))
    np.testing.assert_array_equal(label_ids(found), mask)
    return found


@pytest.mark.parametrize("slices", [9, 1])
@pytest.mark.parametrize("syntax", [None, DeflatedExplicitVRLittleEndian])
def test_binary(tmp_path, slices, syntax):
    mask = labels()[:, :, 2 : 2 + slices] if slices == 1 else labels()
    path = write_seg(tmp_path, mask)
    if syntax:
        change(path, lambda ds: setattr(ds.file_meta, "TransferSyntaxUID", syntax))
    found = check(path, mask)
    assert found.names == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("options", [{}, {"compressed": True}])
def test_label_map(tmp_path, options):
    check(write_seg(tmp_path, labels(), "LABELMAP", **options), labels())


def test_label_map_of_16_bits(tmp_path):
    mask = labels().astype(np.uint16) * 100
    found = check(write_seg(tmp_path, mask, "LABELMAP", [f"s{n}" for n in range(1, 301)]), mask)
    assert found.voxels.dtype == np.uint16


@pytest.mark.parametrize("options", [{}, {"compressed": True}])
def test_fractional_counts_from_one_half_and_says_so(tmp_path, options):
    shares = np.random.default_rng(1).random((13, 11, 5, 2)) * [0.7, 0.3]
    path = write_seg(tmp_path, shares, "FRACTIONAL", ["a", "b"], max_fractional_value=200, **options)
    stored = np.around(shares[..., 0] * 200)  # as highdicom rounds
    found = check(path, (stored >= 100).astype(np.uint8))
    assert any("FRACTIONAL: voxels with at least 50%" in note for note in found.notes)


def test_frames_in_any_order(tmp_path):
    path = write_seg(tmp_path, labels())
    ds = pydicom.dcmread(path)
    order = np.random.default_rng(2).permutation(ds.NumberOfFrames)
    pixels = ds.pixel_array[order]
    ds.PerFrameFunctionalGroupsSequence = [ds.PerFrameFunctionalGroupsSequence[n] for n in order]
    ds.PixelData = pydicom.pixels.utils.pack_bits(pixels)
    ds.save_as(path)
    check(path, labels())


@pytest.mark.parametrize("wrong", [1, 16, None])
def test_a_wrong_spacing_between_slices_does_not_matter(tmp_path, wrong):
    """As mona itself wrote it, of series by SimpleITK."""
    path = write_seg(tmp_path, labels())
    ds = pydicom.dcmread(path)
    measures = ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0]
    measures.SpacingBetweenSlices = wrong
    ds.save_as(path)
    check(path, labels())
    assert read_volume(path).spacing == pytest.approx((1.5, 1.25, 8.0))


@pytest.mark.parametrize("kept", [(2, 8), (2, 4, 8), (1, 3, 6)])
def test_slices_left_out_between_are_counted(tmp_path, kept):
    """By the declared spacing where that is right, else by the largest step that fits; on a reference, either way."""
    mask = np.zeros((13, 11, 12), np.uint8)
    mask[3:6, 2:9, list(kept)] = 2
    path = write_seg(tmp_path, mask)
    check(path, mask)
    assert read_volume(path).spacing[2] == pytest.approx(8)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("flips", [(), (0,), (1, 2), (0, 1, 2)])
def test_a_reference_stored_in_another_order(tmp_path, axes, flips):
    path = write_seg(tmp_path, labels())
    turn = np.eye(4)
    turn[:3, :3] = np.eye(3)[list(axes)].T
    for axis in flips:
        turn[axis] *= -1
        turn[axis, 3] = labels().shape[axis] - 1
    stored = np.flip(labels(), flips).transpose(axes) if flips else labels().transpose(axes)
    found = on_grid_of(read_volume(path), reference(stored, AFFINE @ turn))
    np.testing.assert_array_equal(label_ids(found), stored)


def test_a_tilted_stack(tmp_path):
    tilted = np.diag([-1.5, -1.25, 8.0, 1.0])
    tilted[1, 2] = 2.0
    path = write_seg(tmp_path, labels(), affine=tilted)
    found = on_grid_of(read_volume(path), reference(labels(), tilted))
    np.testing.assert_array_equal(label_ids(found), labels())


def test_a_mask_of_nothing(tmp_path):
    check(write_seg(tmp_path, np.zeros((13, 11, 6), np.uint8)), np.zeros((13, 11, 6), np.uint8))


@pytest.mark.parametrize("shift", [(0.1, 0, 0), (0, 0, 0.5), (0, 0, 3), (1, 0, 0)])
def test_labels_beside_the_reference_are_refused(tmp_path, shift):
    path, moved = write_seg(tmp_path, labels()), AFFINE.copy()
    moved[:3, 3] += AFFINE[:3, :3] @ shift
    with pytest.raises(InputError, match="are not on the same grid"):
        on_grid_of(read_volume(path), reference(labels(), moved))


def test_two_segmentations_of_different_slices(tmp_path):
    a, b = labels(), labels(seed=5)
    a[:, :, :5], b[:, :, 6:] = 0, 0
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = (read_volume(write_seg(tmp_path / name, mask)) for name, mask in (("a", a), ("b", b)))
    one, other = on_one_grid(first, second)
    np.testing.assert_array_equal(label_ids(one), a[:, :, 2:8])  # slices 2..5 of b and 5..7 of a
    np.testing.assert_array_equal(label_ids(other), b[:, :, 2:8])
    np.testing.assert_allclose(one.affine[:3, 3], AFFINE[:3] @ (0, 0, 2, 1), atol=1e-3)


@pytest.mark.parametrize("ids", [(1, 2, 3), (7, 500, 3)])
def test_mona_gets_its_task_s_ids_back(tmp_path, ids, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    classes = [LabelClass(n, name, (9, 9, 9)) for n, name in zip(ids, ("RV", "Myo", "LV"), strict=True)]
    models.write(tmp_path / "m.onnx", replace(models.TASK, classes=(models.TASK.classes[0], *classes)))
    write_series(tmp_path / "series", models.scan(), AFFINE, **TAGS)
    for mask in ("mask.dcm", "mask.nii.gz"):
        app(["segment", "series", "--out", mask, "--model", "m.onnx"], standalone_mode=False)
    capsys.readouterr()
    app(["evaluate", "mask.dcm", "mask.nii.gz", "--json", "scores.json"], standalone_mode=False)
    report = json.loads((tmp_path / "scores.json").read_text())
    assert {label: entry["dsc"] for label, entry in report["cases"][0]["classes"].items()} == {str(n): 1.0 for n in ids}
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("RV", "Myo", "LV"))


def test_class_names_are_shown_and_names_that_differ_are_told(tmp_path, capsys):
    (tmp_path / "other").mkdir()
    a = write_seg(tmp_path, labels(), names=("liver", "spleen", "kidney"))
    b = write_seg(tmp_path / "other", labels(), names=("liver", "kidney", "kidney"))
    nib.save(nib.Nifti1Image(labels(), AFFINE), tmp_path / "ref.nii.gz")
    app(["evaluate", str(a), str(tmp_path / "ref.nii.gz")], standalone_mode=False)
    assert "spleen" in capsys.readouterr().out
    app(["evaluate", str(a), str(b)], standalone_mode=False)
    told = capsys.readouterr().err
    assert f"label 2 is 'spleen' in {a} but 'kidney' in {b}" in told
    assert "label 3 is 'kidney'" in told  # the second of one name is told apart
    assert "label 1" not in told


def test_a_folder_of_segmentations(tmp_path):
    for case in ("p1", "p2"):
        (tmp_path / case).mkdir()
        path = write_seg(tmp_path / case, labels())
        for folder in ("masks", "refs"):
            (tmp_path / folder).mkdir(exist_ok=True)
        path.rename(tmp_path / "masks" / f"{case}.dcm")
        nib.save(nib.Nifti1Image(labels(), AFFINE), tmp_path / "refs" / f"{case}_gt.nii.gz")
    words = ["evaluate", tmp_path / "masks", tmp_path / "refs", "--json", tmp_path / "scores.json"]
    app([str(word) for word in words], standalone_mode=False)
    report = json.loads((tmp_path / "scores.json").read_text())
    assert [case["case"] for case in report["cases"]] == ["p1", "p2"]
    assert report["mean"]["dsc"] == 1


def test_a_folder_with_one_segmentation_in_it_and_frames_of_it(tmp_path):
    path = write_seg(tmp_path, labels())
    (tmp_path / "only").mkdir()
    path.rename(tmp_path / "only" / "1.2.3")
    check(tmp_path / "only", labels())
    (frame,) = read_frames(tmp_path / "only" / "1.2.3")
    np.testing.assert_array_equal(label_ids(on_grid_of(frame, reference(labels()))), labels())


def test_it_is_no_scan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_seg(tmp_path, labels())
    models.write(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="is a DICOM Segmentation, not a scan"):
        app(["segment", str(path), "--out", "x.nii.gz", "--model", "m.onnx"], standalone_mode=False)


def test_overlapping_segments_are_refused(tmp_path):
    both = np.zeros((13, 11, 5, 2), np.uint8)
    both[2:6, 3:5, 2, 0] = both[4:9, 3:5, 2, 1] = 1
    path = write_seg(tmp_path, both, names=("liver", "tumour"))
    with pytest.raises(InputError, match=r"segments 'liver' and 'tumour' overlap \(4 voxels of frame 2\)"):
        read_volume(path)


def change(path, alter):
    ds = pydicom.dcmread(path)
    alter(ds)
    ds.save_as(path)
    return path


def _twice(ds):
    ds.PerFrameFunctionalGroupsSequence[1] = ds.PerFrameFunctionalGroupsSequence[0]


def _off(ds):
    place = ds.PerFrameFunctionalGroupsSequence[-1].PlanePositionSequence[0]
    place.ImagePositionPatient = [float(v) + 1.37 for v in place.ImagePositionPatient]


def _turned(ds):
    ds.PerFrameFunctionalGroupsSequence[1].PlaneOrientationSequence = [pydicom.Dataset()]
    ds.PerFrameFunctionalGroupsSequence[1].PlaneOrientationSequence[0].ImageOrientationPatient = [0, 1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("words", "alter"),
    [
        ("need .* bytes of pixels, found 100", lambda ds: setattr(ds, "PixelData", ds.PixelData[:100])),
        ("need .* bytes of pixels", lambda ds: setattr(ds, "Rows", 60000)),
        ("positions for 15;", lambda ds: setattr(ds, "NumberOfFrames", 2_000_000_000)),
        ("has no segments", lambda ds: setattr(ds, "SegmentSequence", [])),
        ("not have a label id of its own", lambda ds: setattr(ds.SegmentSequence[1], "SegmentNumber", 1)),
        ("shows segment 2, which is not described", lambda ds: setattr(ds.SegmentSequence[1], "SegmentNumber", 9)),
        ("SegmentationType is SKETCH", lambda ds: setattr(ds, "SegmentationType", "SKETCH")),
        ("cannot be read as a segmentation", lambda ds: setattr(ds, "BitsAllocated", 32)),
        ("frames 1 and 2 show segment 1 of the same slice", _twice),
        ("not evenly spaced|lie side by side", _off),
        ("frame 2 is rotated or scaled", _turned),
        ("has no ImageOrientationPatient", lambda ds: delattr(ds, "SharedFunctionalGroupsSequence")),
        ("positions for 0;", lambda ds: delattr(ds, "PerFrameFunctionalGroupsSequence")),
    ],
)
def test_what_cannot_be_trusted_is_refused_in_a_sentence(tmp_path, words, alter):
    with pytest.raises(InputError, match=words):
        read_volume(change(write_seg(tmp_path, labels()), alter))


def test_a_label_that_no_segment_describes(tmp_path):
    path = write_seg(tmp_path, labels(), "LABELMAP")
    with pytest.raises(InputError, match="holds 3, which no segment describes"):
        read_volume(change(path, lambda ds: ds.SegmentSequence.pop()))


def test_a_grid_beyond_the_budget_is_refused_before_it_is_made(tmp_path):
    def far(ds):
        del ds.ReferencedSeriesSequence
        ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].SpacingBetweenSlices = 0.0005

    path = change(write_seg(tmp_path, labels()), far)
    with pytest.raises(TooLarge, match=r"needs .* of memory"):
        read_volume(path, budget=5_000_000)


def test_a_cut_off_file_is_refused(tmp_path):
    data = write_seg(tmp_path, labels()).read_bytes()
    for n in (400, len(data) // 2, len(data) - 40):
        (tmp_path / "cut.dcm").write_bytes(data[:n])
        with pytest.raises(InputError, match=r"cut\.dcm"):
            read_volume(tmp_path / "cut.dcm")
