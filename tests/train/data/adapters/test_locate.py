"""Adapters by name, data by place: found, recognised, or missed in one line that says where to get it."""

import sys
from pathlib import Path

import pytest
from helpers.dataset_files import (
    lits,
    mmwhs,
    nnunet,
)

from mona_infer.errors import InputError
from mona_train.data import adapters
from mona_train.data.adapters import adapter_named, locate, names, recognise


def test_names_are_found_by_themselves():
    assert names() == ["acdc", "folder", "lits", "mmwhs", "mmwhs-mr", "phantom"]


def test_a_module_dropped_in_is_a_dataset(tmp_path, monkeypatch):
    (tmp_path / "kidney.py").write_text(
        "from dataclasses import replace\n"
        "from mona_train.data.adapters.phantom import ADAPTER as PHANTOM\n"
        "ADAPTER = replace(PHANTOM, name='kidney', layout='kidney/x', recognises=lambda f: f.name == 'kidney')\n"
    )
    monkeypatch.setattr(adapters, "__path__", [*adapters.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mona_train.data.adapters.kidney", raising=False)
    try:
        assert "kidney" in names() and adapter_named("kidney").name == "kidney"
        (tmp_path / "kidney").mkdir()
        assert recognise(tmp_path / "kidney").name == "kidney"
    finally:
        sys.modules.pop("mona_train.data.adapters.kidney", None)


@pytest.mark.parametrize(
    "typed, meant", [("adcd", "acdc"), ("ACDC", "acdc"), ("mmwhs_mr", "mmwhs-mr"), ("litz", "lits")]
)
def test_an_unknown_name_gets_the_nearest(typed, meant):
    with pytest.raises(InputError, match=f"unknown data set '{typed}'; did you mean {meant}\\?.*acdc, folder, lits"):
        adapter_named(typed)


def test_every_adapter_says_where_to_get_its_data():
    for adapter in adapters.adapters().values():
        assert adapter.title and adapter.source and adapter.licence
        assert "\n" not in adapter.layout + adapter.source + adapter.licence


def test_missing_data_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MONA_DATA", str(tmp_path / "all"))
    lits(tmp_path / "data" / "acdc")  # there, but something else
    with pytest.raises(InputError) as error:
        locate("acdc")
    text = str(error.value)
    assert "\n" not in text and "https://" in text and "CC BY-NC-SA 4.0" in text
    assert "patient001_frame01_gt.nii.gz" in text
    assert f"{tmp_path / 'all' / 'acdc'} (does not exist), data/acdc (has another layout)" in text
    with pytest.raises(InputError, match=r"Searched: nowhere \(does not exist\)$"):
        locate("lits", Path("nowhere"))


def test_data_is_looked_for_where_it_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_DATA", raising=False)
    adapter = adapter_named("lits")
    lits(tmp_path / "lits")
    assert locate("lits") == (adapter, Path("lits"))
    lits(tmp_path / "data" / "lits")
    assert locate("lits") == (adapter, Path("data/lits"))
    lits(tmp_path / "all" / "lits")
    monkeypatch.setenv("MONA_DATA", str(tmp_path / "all"))
    assert locate("lits") == (adapter, tmp_path / "all" / "lits")
    assert locate("lits", Path("data/lits")) == (adapter, Path("data/lits"))


def test_a_path_is_itself_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnunet(tmp_path / "Dataset004_Heart")
    mmwhs(tmp_path / "x" / "hearts")
    assert locate("Dataset004_Heart") == (adapter_named("folder"), Path("Dataset004_Heart"))
    assert locate("./x/hearts") == (adapter_named("mmwhs"), Path("x/hearts"))
    with pytest.raises(InputError, match=r"^no/such is not a folder$"):
        locate("no/such")
    with pytest.raises(InputError, match="unknown data set 'nothing'"):
        locate("nothing")


def test_a_folder_like_nothing_known_is_told_how_to_look(tmp_path):
    with pytest.raises(
        InputError, match=r"not have the layout of any known data set \(acdc, .*dataset.json, imagesTr/"
    ):
        recognise(tmp_path)
