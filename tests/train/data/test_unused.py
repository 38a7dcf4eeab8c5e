"""Labels that no scan goes with, and scans without a label though one of a similar name is there, are named."""

import json
from pathlib import Path

import pytest
from helpers.dataset_files import acdc_challenge, decathlon, lits, mask, mmwhs, nnunet, save, scan
from typer.testing import CliRunner

from mona_infer.errors import InputError
from mona_train.cli.data import app
from mona_train.data.adapters import adapter_named
from mona_train.data.check import problems
from mona_train.data.unused_files import unused, warnings

RUN = CliRunner()


def found(name, folder):
    adapter = adapter_named(name)
    return unused(adapter, folder, adapter.cases(folder))


def said(name, folder):
    adapter = adapter_named(name)
    return warnings(adapter, folder, adapter.cases(folder))


def only(name, folder):
    (entry,) = found(name, folder)
    return entry


@pytest.mark.parametrize(
    "name, write",
    [("acdc", acdc_challenge), ("lits", lits), ("mmwhs", mmwhs), ("folder", decathlon), ("folder", nnunet)],
)
def test_a_sound_dataset_uses_every_file(tmp_path, name, write):
    assert said(name, write(tmp_path)) == []


@pytest.mark.parametrize(
    "wrong", ["heart_001_0000", "Heart_001", "heart_1", "heart-001", "heart_001_seg", "heart_001_gt", "haert_001"]
)
@pytest.mark.parametrize("write", [decathlon, nnunet])
def test_a_misnamed_label_and_its_scan_are_named(tmp_path, write, wrong):
    write(tmp_path, names=("heart_001", "heart_002"), unlabelled=("heart_003", "heart_011"))
    (tmp_path / "labelsTr" / "heart_001.nii.gz").rename(tmp_path / "labelsTr" / f"{wrong}.nii.gz")
    entry = only("folder", tmp_path)
    scan_file = next((tmp_path / "imagesTr").glob("heart_001*"))
    assert entry.lost and entry.path.name == f"{wrong}.nii.gz"
    assert f"{scan_file} is treated as unlabelled" in entry.message
    assert entry.message.endswith("rename it to labelsTr/heart_001.nii.gz")
    errors = [p for p in problems(adapter_named("folder"), tmp_path) if p.severity == "error"]
    assert [p.message for p in errors] == [entry.message]


def test_a_label_without_any_scan(tmp_path):
    nnunet(tmp_path, unlabelled=("la_005",))
    save(tmp_path / "labelsTr" / "la_006.nii.gz", mask(1, (0, 1)))
    entry = only("folder", tmp_path)
    assert not entry.lost and entry.message == f"{entry.path} is not used: no scan has a matching name"
    assert [p.severity for p in problems(adapter_named("folder"), tmp_path)] == ["warning"]


def test_a_label_that_is_listed_and_not_there(tmp_path):
    decathlon(tmp_path)
    (tmp_path / "labelsTr" / "liver_1.nii.gz").unlink()
    (words,) = said("folder", tmp_path)
    assert words.startswith(f"{tmp_path / 'imagesTr' / 'liver_1.nii.gz'} is treated as unlabelled: its label")


def test_a_second_label_of_one_scan(tmp_path):
    decathlon(tmp_path)
    save(tmp_path / "labelsTr" / "liver_1.nii", mask(1, (0, 1, 2)))
    entry = only("folder", tmp_path)
    assert not entry.lost and "liver_1.nii is not used: liver_1 already has the label" in entry.message


@pytest.mark.parametrize("kind, lost", [("labelsTr/la_004.mgz", True), ("imagesTr/la_009_0000.npy", False)])
def test_other_formats_are_not_passed_over(tmp_path, kind, lost):
    nnunet(tmp_path, names=("la_003",), unlabelled=("la_004",))
    (tmp_path / kind).write_bytes(b"voxels")
    entry = only("folder", tmp_path)
    assert entry.lost is lost and f"{kind} is not used: mona cannot train on" in entry.message


def test_a_folder_of_dicom_among_the_scans(tmp_path):
    nnunet(tmp_path)
    (tmp_path / "imagesTr" / "la_007").mkdir()
    assert "la_007 is a folder and is not used" in only("folder", tmp_path).message


@pytest.mark.parametrize("wrong", ["segmentation_1.nii", "Segmentation-1.nii", "segmentation-1-new.nii"])
def test_lits_names(tmp_path, wrong):
    lits(tmp_path)
    (tmp_path / "segmentation-1.nii").rename(tmp_path / wrong)
    entry = only("lits", tmp_path)
    if wrong.endswith("new.nii"):
        assert "no scan has a matching name" in entry.message
    else:
        assert entry.lost and entry.message.endswith("rename it to segmentation-1.nii")


def test_a_lits_volume_under_another_name(tmp_path):
    lits(tmp_path)
    (tmp_path / "volume-1.nii").rename(tmp_path / "volume_1.nii")
    words = [p.message for p in problems(adapter_named("lits"), tmp_path)]
    missing = (
        f"{tmp_path / 'segmentation-1.nii'} is the label of volume-1.nii, but {tmp_path / 'volume-1.nii'} does not"
    )
    assert any(w.startswith(missing) for w in words)
    assert any(w.startswith(f"{tmp_path / 'volume_1.nii'} is not used: expected lits/") for w in words)


def test_mmwhs_names(tmp_path):
    mmwhs(tmp_path)
    mmwhs(tmp_path, kind="mr")  # the other half is not ours to judge
    (tmp_path / "ct_train_1001_label.nii.gz").rename(tmp_path / "ct_train_1001_labels.nii.gz")
    entry = only("mmwhs", tmp_path)
    assert entry.lost and entry.message.endswith("rename it to ct_train_1001_label.nii.gz")


def test_an_mmwhs_label_without_its_image(tmp_path):
    mmwhs(tmp_path)
    (tmp_path / "ct_train_1001_image.nii.gz").unlink()
    case = adapter_named("mmwhs").cases(tmp_path)[1]
    with pytest.raises(InputError, match=r"ct_train_1001_label.nii.gz is the label of ct_train_1001_image.nii.gz, but"):
        case.image()


@pytest.mark.parametrize("wrong", ["patient001_frame12gt.nii.gz", "patient001_frame12_GT.nii.gz"])
def test_acdc_names(tmp_path, wrong):
    acdc_challenge(tmp_path)
    folder = tmp_path / "patient001"
    (folder / "patient001_frame12_gt.nii.gz").rename(folder / wrong)
    entry = only("acdc", tmp_path)
    assert entry.lost and entry.message.endswith("rename it to patient001_frame12_gt.nii.gz")


def test_an_acdc_label_of_no_frame(tmp_path):
    acdc_challenge(tmp_path)
    save(tmp_path / "patient001" / "patient001_frame05_gt.nii.gz", mask(1))
    assert "patient001_frame05_gt.nii.gz is not used: no scan has a matching name" in only("acdc", tmp_path).message


def test_prepare_names_five_and_counts_the_rest_and_check_names_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnunet(Path("mine"), names=("a_01",))
    for n in range(2, 10):
        save(Path(f"mine/labelsTr/b_{n:02d}.nii.gz"), mask(n, (0, 1)))
    save(Path("mine/imagesTr/a_10_0000.nii.gz"), scan(10))
    save(Path("mine/labelsTr/A_10.nii.gz"), mask(10, (0, 1)))
    done = RUN.invoke(app, ["prepare", "./mine", "--size", "32"])
    lines = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert done.exit_code == 0 and len(lines) == 6
    assert "A_10.nii.gz" in lines[0]  # one that has a scan comes first
    assert lines[-1] == "warning: and 4 more; `mona data check` lists all of them"
    checked = RUN.invoke(app, ["check", "./mine"]).stdout
    assert all(f"b_{n:02d}.nii.gz is not used" in checked for n in range(2, 10)) and "1 error(s)" in checked


def test_prepare_makes_what_train_uses_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnunet(Path("mine"))
    monkeypatch.setattr("mona_train.config.default_preset.default_preset", lambda: ("cpu", ""))
    done = RUN.invoke(app, ["prepare", "./mine"])
    assert done.stdout.splitlines()[:2] == [
        "preset cpu (the default on this machine): slices with a long side of about 256",
        "preparing cache/mine-256",
    ]
    again = RUN.invoke(app, ["prepare", "./mine", "--preset", "cpu"])
    assert again.stdout.splitlines()[:2] == [
        "preset cpu: slices with a long side of about 256",
        "using cache/mine-256, which is already prepared",
    ]
    other = RUN.invoke(app, ["prepare", "./mine", "--preset", "paper"])
    assert other.stdout.splitlines()[1:2] == [
        "preparing cache/mine-256x256: cache/mine-256 has slices of another size",
    ]
    save(Path("mine/imagesTr/la_009_0000.nii.gz"), scan(9))
    new = RUN.invoke(app, ["prepare", "./mine", "--size", "256x256"])
    assert new.stdout.startswith("preparing cache/mine-256x256 again: imagesTr/la_009_0000.nii.gz is new\n")
    shown = RUN.invoke(app, ["info", "./mine", "--json"])  # standard output is for the JSON alone
    assert json.loads(shown.stdout)["volumes"] == 3 and "using cache/mine-256" not in shown.stdout


def test_labels_in_a_folder_of_another_name(tmp_path):
    nnunet(tmp_path)
    (tmp_path / "labelsTr").rename(tmp_path / "labels")
    expected = f"{tmp_path / 'labelsTr'} does not exist, and labels is not used; labels are expected there"
    assert said("folder", tmp_path) == [expected]
