"""Which reference belongs to which scan or mask, for `segment --reference` and `evaluate` alike."""

import pytest

from mona_infer.errors import InputError
from mona_infer.io.pairing import match_cases
from mona_infer.segmenting.jobs import find_jobs


def folder(place, *names):
    place.mkdir()
    for name in names:
        (place / name).write_bytes(b"")
    return place


@pytest.mark.parametrize(
    ("scans", "references"),
    [
        (["a.nii.gz", "b.nii"], ["a.nii", "b.nii.gz"]),
        (["a.nii.gz"], ["a_gt.nii.gz"]),
        (["a_0000.nii.gz", "b_0000.nii.gz"], ["a.nii.gz", "b.nii.gz"]),  # nnU-Net
        (["a_0000.nii.gz"], ["a_gt.nii.gz"]),
        (["p_0001.nii.gz", "p_0002.nii.gz"], ["p_0001.nii.gz", "p_0002.nii.gz"]),  # a number, not a channel
        (["p_0001.nii.gz"], ["p_0001_gt.nii.gz"]),
        (["a.nii.gz", "a_0000.nii.gz"], ["a.nii.gz", "a_0000.nii.gz"]),
    ],
    ids=str,
)
def test_segment_and_evaluate_pair_alike(scans, references, tmp_path):
    images, labels = folder(tmp_path / "images", *scans), folder(tmp_path / "labels", *references)
    expected = [f"labels/{name}" for name in references]
    jobs, _ = find_jobs(images, tmp_path / "masks", labels)
    assert [job.reference.relative_to(tmp_path).as_posix() for job in jobs] == expected
    cases = match_cases(images, labels)
    assert [case.reference.relative_to(tmp_path).as_posix() for case in cases] == expected
    assert [case.prediction.name for case in cases] == [job.scan.name for job in jobs]


def test_one_patients_number_is_not_anothers_channel(tmp_path):
    images, labels = folder(tmp_path / "images", "p_0002.nii.gz"), folder(tmp_path / "labels", "p_0001.nii.gz")
    with pytest.raises(InputError, match="no mask for 1 of 1 references"):
        match_cases(images, labels)
    with pytest.raises(InputError, match=r"no reference for p_0002; looked for p.nii.gz, p_gt.nii.gz, p_0002.nii.gz"):
        find_jobs(images, tmp_path / "masks", labels)


def test_two_channels_are_not_two_predictions_of_one_case(tmp_path):
    images = folder(tmp_path / "images", "a_0000.nii.gz", "a_0001.nii.gz")
    labels = folder(tmp_path / "labels", "a.nii.gz")
    with pytest.raises(InputError, match=r"a_0000.nii.gz and .*a_0001.nii.gz are both predictions for .*a.nii.gz"):
        match_cases(images, labels)
    (images / "a.nii.gz").write_bytes(b"")
    assert [case.prediction.name for case in match_cases(images, labels)] == ["a.nii.gz"]


def test_the_reference_of_one_scan_may_be_looked_up_in_a_folder(tmp_path):
    images, labels = folder(tmp_path / "images", "a_0000.nii.gz"), folder(tmp_path / "labels", "a.nii.gz")
    (job,), several = find_jobs(images / "a_0000.nii.gz", tmp_path / "m.nii.gz", labels)
    assert (job.reference, several) == (labels / "a.nii.gz", False)


def test_a_folder_against_a_file_is_told_as_that(tmp_path):
    masks = folder(tmp_path / "masks", "a.nii.gz", "b.nii.gz")
    (tmp_path / "ref.nii.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"masks is a folder of 2 masks and .*ref.nii.gz is one file; give two"):
        match_cases(masks, tmp_path / "ref.nii.gz")
    with pytest.raises(InputError, match=r"ref.nii.gz is a file and .*masks is a folder; give two"):
        match_cases(tmp_path / "ref.nii.gz", masks)
    with pytest.raises(InputError, match=r"masks is a folder of 2 scans but x.nii.gz names a single mask; give"):
        find_jobs(masks, type(masks)("x.nii.gz"))


def test_a_nifti_file_beside_a_dicom_series_does_not_make_it_a_folder_of_scans(tmp_path):
    series = folder(tmp_path / "series", "notes.nii.gz")
    (series / "1.dcm").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "ref.nii.gz").write_bytes(b"")
    (job,), several = find_jobs(series, tmp_path / "m.nii.gz")
    assert (job.scan, several) == (series, False)
    assert match_cases(series, tmp_path / "ref.nii.gz")[0].prediction == series
