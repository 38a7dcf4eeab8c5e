"""What a cohort is: folders, lists and patterns become the same jobs in every command; parts share them out."""

from pathlib import Path

import pytest

from mona_infer.cohort.listing import find_cohort
from mona_infer.cohort.parts import check_parts, part_of
from mona_infer.errors import InputError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/one.nii.gz", "a/two.nii.gz", "a/two_gt.nii.gz", "b/one.nii", "notes.md"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    return tmp_path


def names(place, out="masks", **options):
    jobs, folder = find_cohort(str(place), Path(out), **options)
    assert folder
    return {job.name: job.scan.as_posix() for job in jobs}


def test_a_pattern_names_its_scans_by_their_place_below_it(here):
    assert names("*/*.nii*") == {"a/one": "a/one.nii.gz", "a/two": "a/two.nii.gz", "b/one": "b/one.nii"}
    assert names("a/*") == {"one": "a/one.nii.gz", "two": "a/two.nii.gz"}
    assert names(here / "**/*.nii", out="/elsewhere") == {"b/one": f"{here}/b/one.nii"}
    assert names("?") == {"a": "a", "b": "b"}  # folders, each taken for a DICOM series


def test_a_list_is_read_relative_to_its_folder(here):
    Path("list.txt").write_text("# of today\na/two.nii.gz\n\nb/one.nii\n")
    assert names("list.txt") == {"a/two": "a/two.nii.gz", "b/one": "b/one.nii"}
    Path("a/list.txt").write_text("../b/one.nii\none.nii.gz\n")  # not all below the list's folder
    assert names("a/list.txt") == {"a/one": "a/one.nii.gz", "b/one": "a/../b/one.nii"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("id,Scan\n7,a/one.nii.gz\n", {"a/one": "a/one.nii.gz"}),
        ("age,path,case\n7,a/one.nii.gz,p7/first\n", {"p7/first": "a/one.nii.gz"}),
        ("where,age\na/one.nii.gz,7\n", {"a/one": "a/one.nii.gz"}),
        ("a/one.nii.gz,7\nb/one.nii,8\n", {"a/one": "a/one.nii.gz", "b/one": "b/one.nii"}),
        ('image\n"b/one.nii"\n,\n', {"b/one": "b/one.nii"}),
    ],
)
def test_a_csv_list_has_a_column_of_scans(here, text, found):
    Path("list.csv").write_text(text)
    assert names("list.csv") == found


def test_one_scan_stays_one_scan(here):
    (job,), folder = find_cohort("a/one.nii.gz", Path("mask.nii.gz"))
    assert not folder and job.out == Path("mask.nii.gz")


@pytest.mark.parametrize(
    ("place", "out", "message"),
    [
        ("c/*.nii", "masks", "matches no scan"),
        ("*/*.nii*", "mask.nii.gz", "names several scans"),
        ("**/*.nii", "masks", "is inside"),
        ("a/*.nii.gz", "a", "would have the name of the scan"),
        ("empty.csv", "masks", "lists no scans"),
        ("climbs.csv", "masks", "cannot be the name of a mask"),
        ("twice.txt", "masks", "are the same case"),
        ("binary.txt", "masks", "cannot be read as a list"),
        ("gone/", "masks", "does not exist"),
    ],
)
def test_what_cannot_be_a_cohort_is_refused(here, place, out, message):
    Path("empty.csv").write_text("scan\n")
    Path("climbs.csv").write_text("scan,case\na/one.nii.gz,../../one\n")
    Path("twice.txt").write_text("a/one.nii.gz\na/one.nii.gz\n")
    Path("binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=message):
        find_cohort(place, Path(out))


def test_parts_are_everything_once_and_a_longer_list_keeps_its_parts():
    whole = list(range(23))
    parts = [part_of(whole, 4, k) for k in range(4)]
    assert sorted(n for part in parts for n in part) == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [part_of([*whole, 23], 4, k)[: len(part)] for k, part in enumerate(parts)] == parts
    assert part_of(whole, None, None) == whole and part_of([1], 3, 2) == []
    for wrong in ((4, None), (None, 0), (4, 4), (4, -1)):
        with pytest.raises(InputError, match="--part"):
            check_parts(*wrong)
