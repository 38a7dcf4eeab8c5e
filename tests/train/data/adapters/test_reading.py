"""Which files of a dataset's folder are looked at."""

from helpers.dataset_cases import cases_of
from helpers.dataset_files import (
    lits,
    save,
    scan,
)

from mona_train.data.adapters.reading import files_below


def test_hidden_files_and_folders_are_not_looked_at(tmp_path):
    for name in ("a.nii", "._a.nii", ".trash/b.nii", "__MACOSX/c.nii", "x/d.nii"):
        save(tmp_path / name, scan(1))
    assert [path.name for path in files_below(tmp_path)] == ["a.nii", "d.nii"]


def test_files_are_found_through_links_that_may_lead_in_circles(tmp_path):
    lits(tmp_path / "disk")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "here").symlink_to(tmp_path / "disk", target_is_directory=True)
    (tmp_path / "disk" / "up").symlink_to(tmp_path / "data", target_is_directory=True)
    assert len(cases_of("lits", tmp_path / "data")) == 3
