"""Which series of a folder is read: the largest, or the one that is asked for."""

from __future__ import annotations

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_series
from helpers.dicom_reading import AXIAL, read, refused, scan

pytestmark = pytest.mark.usefixtures("silence")


@pytest.fixture
def three_series(tmp_path):
    write_series(tmp_path / "x", scan((6, 5, 3), seed=1), AXIAL, SeriesNumber=1, SeriesDescription="scout")
    write_series(tmp_path / "y", scan((6, 5, 7), seed=2), AXIAL, SeriesNumber=2, SeriesDescription="T1 axial")
    write_series(tmp_path, scan((6, 5, 4), seed=3), AXIAL, SeriesNumber=3, SeriesInstanceUID="1.2.3.4")
    report = pydicom.dcmread(tmp_path / "x" / "0000.dcm")
    for keyword in ("Rows", "Columns", "PixelData", "ImagePositionPatient"):
        delattr(report, keyword)
    report.SeriesInstanceUID = "1.2.3.5"
    report.file_meta.MediaStorageSOPClassUID = report.SOPClassUID = pydicom.uid.BasicTextSRStorage
    report.save_as(tmp_path / "report.dcm")
    return tmp_path


def test_the_largest_series_is_read_and_the_others_listed(three_series):
    volume = read(three_series)
    np.testing.assert_array_equal(volume.voxels, scan((6, 5, 7), seed=2))
    (note,) = volume.notes
    for word in (
        "2 'T1 axial' with 7 slice(s) of 6x5 pixels",
        "the largest",
        "1 'scout' with 3",
        "3 'synthetic' with 4",
        "--series",
    ):
        assert word in note


@pytest.mark.parametrize(("wanted", "seed"), [("1", 1), ("scout", 1), ("T1 axial", 2), ("1.2.3.4", 3), ("3", 3)])
def test_a_series_is_chosen_by_number_description_or_uid(three_series, wanted, seed):
    volume = read(three_series, series=wanted)
    np.testing.assert_array_equal(volume.voxels, scan(volume.shape, seed=seed))
    assert volume.notes == ()


def test_a_choice_that_matches_nothing_lists_what_is_there(three_series):
    refused(three_series, "no series matches 'T1'", "2 'T1 axial' with 7", series="T1")


def test_a_choice_that_matches_two_is_refused(three_series):
    write_series(three_series / "z", scan((6, 5, 2)), AXIAL, SeriesNumber=9, SeriesDescription="scout")
    refused(three_series, "2 series match 'scout'", "9 'scout' with 2", series="scout")


def test_a_tie_is_refused_with_a_list(tmp_path):
    for number in (4, 5):
        write_series(tmp_path / str(number), scan(), AXIAL, SeriesNumber=number, SeriesDescription=f"run {number}")
    refused(tmp_path, "4 'run 4' with 4", "5 'run 5' with 4", "--series")


def test_unusable_images_of_another_series_do_not_matter(tmp_path):
    write_series(tmp_path / "rgb", scan((6, 5, 2)), AXIAL, PhotometricInterpretation="RGB", PixelSpacing=None)
    write_series(tmp_path / "mr", scan(), AXIAL)
    np.testing.assert_array_equal(read(tmp_path).voxels, scan())
