"""`mona segment` in this process: options, folders, what is kept, what is refused, what is never left behind."""

import errno
import fcntl
import json
import os
import pathlib
import time
from dataclasses import replace
from unittest.mock import Mock

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.dicom_files import write_series
from PIL import Image

from mona_infer.cli.main import app
from mona_infer.errors import CheckFailed, InputError
from mona_infer.models.find import find_model
from mona_infer.segmenting.jobs import find_jobs
from mona_infer.system.lock import LEFT_BEHIND

AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])


def mona(*args):
    return app(["segment", *map(str, args)], standalone_mode=False)


def put(path, seed=0, voxels=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(models.scan(seed) if voxels is None else voxels, AFFINE), path)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_MODEL", raising=False)
    models.write(tmp_path / "model.onnx")
    put(tmp_path / "scan.nii.gz")
    return tmp_path


def voxels(path):
    return np.asarray(nib.load(path).dataobj)


def test_a_scan_with_everything(here, capsys):
    mona("scan.nii.gz", "--out", "mask.nii.gz", "--model", "model.onnx")
    first = voxels("mask.nii.gz")
    assert set(np.unique(first)) == {0, 1, 2, 3}
    put(here / "ref.nii.gz", voxels=first)
    options = ["--reference", "ref.nii.gz", "--stats", "s.json", "--preview", "p.png", "--probabilities", "maps"]
    mona("scan.nii.gz", "--out", "again.nii.gz", "--model", "model.onnx", "--json", *options)
    out = capsys.readouterr().out
    report = json.loads(out[out.index("{") :])
    assert report == json.loads((here / "s.json").read_text())
    (case,) = report["cases"]
    assert case["scores"]["LV"] == {
        "dsc": 1, "jaccard": 1, "sensitivity": 1, "precision": 1, "nsd": 1,
        "asd": 0, "assd": 0, "hd95": 0, "hd": 0, "miss": False,
    }  # fmt: skip
    entry = case["classes"]["LV"]
    assert entry["voxels"] == (first == 3).sum()
    assert entry["ml"] == pytest.approx(entry["voxels"] * 18 / 1000, rel=1e-3)
    assert sum(entry["areas_mm2"]) == pytest.approx(entry["voxels"] * 2.25)
    assert 0 < entry["confidence"] <= 1
    assert Image.open("p.png").size[0] > 300
    assert {p.name[:-7] for p in (here / "maps" / "scan").iterdir()} == {"background", "RV", "Myo", "LV"}
    np.testing.assert_array_equal(voxels("again.nii.gz"), first)
    assert (nib.load("again.nii.gz").affine == AFFINE).all()


def test_a_preview_has_square_millimetres_and_names_the_classes(here):
    """Slices taken through a stack of 4 mm: each of its rows is drawn four times."""
    models.write(here / "front.onnx", replace(models.TASK, slices="posterior-anterior"))
    nib.save(nib.Nifti1Image(models.scan(0, (40, 8, 10)), np.diag([1.0, 1.0, 4.0, 1.0])), "thick.nii.gz")
    mona("thick.nii.gz", "--out", "m.nii.gz", "--model", "front.onnx", "--preview", "p.png")
    sheet = np.asarray(Image.open("p.png"), int)
    tile = sheet[20 : 20 + 192, 4 : 4 + 192]  # below its caption: 40 mm wide and 40 mm high, so all of it is drawn
    assert (np.abs(tile - 24).max(axis=2) > 2).mean() > 0.9
    legend = sheet[-16:].reshape(-1, 3)
    for c in models.TASK.classes[1:]:
        assert (np.abs(legend - c.colour).max(axis=1) < 60).any()


def test_it_says_what_it_took_and_names_what_it_wrote_last(here, capsys):
    mona("scan.nii.gz", "--out", "mask.nii.gz", "--model", "model.onnx")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("model model.onnx (fp32) on ONNX Runtime")
    assert "mL" in lines[1]
    assert lines[-1] == "wrote mask.nii.gz"


def test_dicom_gives_the_mask_of_the_same_voxels(here):
    write_series(here / "series", models.scan(), AFFINE)
    mona("series", "--out", "a.nii.gz", "--model", "model.onnx")
    mona("scan.nii.gz", "--out", "b.nii.gz", "--model", "model.onnx")
    a, b = nib.load("a.nii.gz"), nib.load("b.nii.gz")
    a, b = (nib.as_closest_canonical(image) for image in (a, b))
    np.testing.assert_allclose(a.affine, b.affine, atol=1e-3)
    np.testing.assert_array_equal(np.asarray(a.dataobj), np.asarray(b.dataobj))


def test_a_modality_that_contradicts_the_model_is_refused_unless_forced(here):
    write_series(here / "series", models.scan(), AFFINE)
    models.write(here / "ct.onnx", replace(models.TASK, modality="CT"))
    with pytest.raises(InputError, match="trained on CT"):
        mona("series", "--out", "mask.nii.gz", "--model", "ct.onnx")
    assert not (here / "mask.nii.gz").exists()
    mona("series", "--out", "mask.nii.gz", "--model", "ct.onnx", "--force")


def test_a_scan_unlike_training_is_segmented_with_a_warning(here, capsys):
    models.write(here / "far.onnx", replace(models.TASK, seen={"in-plane spacing": (0.3, 0.4)}))
    mona("scan.nii.gz", "--out", "mask.nii.gz", "--model", "far.onnx")
    assert "warning: scan: its in-plane spacing is 1.5 mm; in training it was 0.3 to 0.4" in capsys.readouterr().err


def test_a_scan_without_an_organ_is_segmented_with_a_warning(here, capsys):
    looking = replace(models.TASK, long_side=64, window=(32, 32), first_look=True)
    models.write(here / "looking.onnx", looking)
    put(here / "empty.nii.gz", voxels=np.zeros((40, 36, 5), np.int16))
    for scan in ("scan", "empty"):
        mona(f"{scan}.nii.gz", "--out", f"{scan}-mask.nii.gz", "--model", "looking.onnx", "--stats", f"{scan}.json")
    told = capsys.readouterr().err
    assert "warning: empty: the first look found no organ in this scan: the window is at the centre" in told
    assert "warning: scan" not in told
    (case,) = json.loads((here / "empty.json").read_text())["cases"]
    assert [w for w in case["warnings"] if "first look" in w]
    assert models.packed(models.model_bytes(models.LOOKING))[:60] not in (here / "scan.json").read_text()


@pytest.fixture
def folder(here):
    for n, name in enumerate(("a", "b", "deep/c")):
        put(here / "scans" / f"{name}.nii.gz", n)
    put(here / "scans" / "deep" / "c_gt.nii.gz", voxels=np.zeros((40, 36, 5), np.uint8))  # ACDC's place for references
    write_series(here / "scans" / "d", models.scan(3), AFFINE)
    (here / "scans" / "bad.nii.gz").write_bytes(b"\x1f\x8b\x08 not a scan")
    (here / "scans" / "notes.txt").write_text("not a scan either")
    return here


def test_one_bad_case_stops_neither_the_rest_nor_the_report(folder, capsys):
    with pytest.raises(CheckFailed, match=r"1 of 5 cases failed \(bad\)"):
        mona("scans", "--out", "masks", "--model", "model.onnx", "--stats", "s.json", "--preview", "p.png")
    found = sorted(p.relative_to(folder / "masks").as_posix() for p in (folder / "masks").rglob("*") if p.is_file())
    assert found == ["a.nii.gz", "b.nii.gz", "d.nii.gz", "deep/c.nii.gz"]
    told = capsys.readouterr()
    assert "bad: scans/bad.nii.gz" in told.err
    assert "4 segmented, 0 had a mask already, 1 failed" in told.out
    report = json.loads((folder / "s.json").read_text())
    assert [("error" in c, c["case"]) for c in report["cases"]] == [
        (False, "a"), (False, "b"), (True, "bad"), (False, "d"), (False, "deep/c"),
    ]  # fmt: skip


def test_what_has_a_mask_is_not_done_again(folder, capsys):
    (folder / "scans" / "bad.nii.gz").unlink()
    mona("scans", "--out", "masks", "--model", "model.onnx")
    times = {p: p.stat().st_mtime_ns for p in (folder / "masks").rglob("*.nii.gz")}
    (folder / "masks" / "b.nii.gz").unlink()
    capsys.readouterr()
    mona("scans", "--out", "masks", "--model", "model.onnx")
    assert "1 segmented, 3 had a mask already, 0 failed" in capsys.readouterr().out
    again = {p: p.stat().st_mtime_ns for p in times}
    assert [p.name for p in times if times[p] != again[p]] == ["b.nii.gz"]
    mona("scans", "--out", "masks", "--model", "model.onnx", "--overwrite")
    assert all(p.stat().st_mtime_ns != again[p] for p in times)


def test_a_disk_that_is_full_fails_its_case_alone_and_leaves_nothing(folder, monkeypatch):
    (folder / "scans" / "bad.nii.gz").unlink()
    opened = pathlib.Path.open

    def open_(self, mode="r", *args, **options):
        file = opened(self, mode, *args, **options)
        if mode == "wb" and self.name.endswith("b.nii.gz"):
            file.close()
            return opened(pathlib.Path("/dev/full"), mode)
        return file

    monkeypatch.setattr(pathlib.Path, "open", open_)
    with pytest.raises(CheckFailed, match=r"1 of 4 cases failed \(b\)"):
        mona("scans", "--out", "masks", "--model", "model.onnx", "--stats", "s.json")
    monkeypatch.undo()
    (failed,) = [c for c in json.loads((folder / "s.json").read_text())["cases"] if "error" in c]
    assert failed["error"] == "masks/b.nii.gz cannot be written: No space left on device"
    assert sorted(p.name for p in (folder / "masks").iterdir()) == ["a.nii.gz", "d.nii.gz", "deep"]


@pytest.mark.parametrize("option", ["--preview", "--stats"])
def test_what_fails_after_the_masks_says_what_was_written(here, option, monkeypatch):
    """A disk that fills up between the mask and the picture: the mask is there, and the sentence says so."""
    name = {"--preview": "p.png", "--stats": "s.json"}[option]
    opened = pathlib.Path.replace

    def replace_(self, target):
        if self.name.endswith(name):
            raise OSError(28, "No space left on device", str(self))
        return opened(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", replace_)
    with pytest.raises(InputError) as failure:
        mona("scan.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx", option, name, "--probabilities", "maps")
    expected = f"{name} cannot be written: No space left on device; written before that: m.nii.gz, maps"
    assert str(failure.value) == expected
    assert {p.name for p in here.iterdir()} == {"model.onnx", "scan.nii.gz", "m.nii.gz", "maps"}


def test_where_nothing_can_be_removed_the_error_still_names_the_file(here, monkeypatch):
    """On a read-only disk removing the temporary file fails too; its name is nobody's business."""

    def refuse(self, *args, **options):
        raise PermissionError(13, "Permission denied", str(self))

    from mona_infer.io.atomic import write_text

    monkeypatch.setattr(pathlib.Path, "unlink", refuse)
    monkeypatch.setattr(pathlib.Path, "write_text", refuse)
    with pytest.raises(InputError, match=r"^s.json cannot be written: Permission denied$"):
        write_text(pathlib.Path("s.json"), "{}")


def test_class_names_never_lead_out_of_the_folder_of_maps(here):
    names = ("background", "../../RV", "/etc/Myo", "L V")
    classes = tuple(replace(c, name=name) for c, name in zip(models.TASK.classes, names, strict=True))
    models.write(here / "odd.onnx", replace(models.TASK, classes=classes))
    mona("scan.nii.gz", "--out", "m.nii.gz", "--model", "odd.onnx", "--probabilities", "maps")
    found = sorted(p.relative_to(here / "maps").as_posix() for p in (here / "maps").rglob("*.nii.gz"))
    assert found == [f"scan/{n}.nii.gz" for n in ("L_V", "______RV", "_etc_Myo", "background")]


def test_folders_are_scored_against_folders(folder, capsys):
    (folder / "scans" / "bad.nii.gz").unlink()
    mona("scans", "--out", "ref", "--model", "model.onnx")
    mona("scans", "--out", "masks", "--model", "model.onnx", "--reference", "ref")
    assert capsys.readouterr().out.count("DSC 1.000") == 4 * 3
    (folder / "ref" / "b.nii.gz").unlink()
    with pytest.raises(InputError, match="no reference for b"):
        mona("scans", "--out", "more", "--model", "model.onnx", "--reference", "ref")


@pytest.mark.parametrize("locks", [True, False])
def test_leftovers_of_killed_processes_go(folder, monkeypatch, locks):
    """At once, as nobody else is at work there; on a disk without locks, when they are old."""
    if not locks:
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOTSUP, "not supported")))
    (folder / "scans" / "bad.nii.gz").unlink()
    left = ["masks/.01234567.a.nii.gz", "maps/b/.01234567.LV.nii.gz", ".01234567.all.json"]
    old, young = [folder / name for name in left], [folder / name.replace("0123", "ffff") for name in left]
    others = folder / "masks" / ".01234567.notes.gz"
    for path in (*old, *young, others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a mask")
    for path in (*old, others):
        os.utime(path, (1, time.time() - LEFT_BEHIND - 5))
    mona("scans", "--out", "masks", "--model", "model.onnx", "--probabilities", "maps", "--stats", "all.json")
    assert [path for path in old if path.exists()] == []
    assert [path.exists() for path in young] == [not locks] * 3
    assert others.exists()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["nowhere.nii.gz", "--out", "m.nii.gz"], "does not exist"),
        (["scan.nii.gz", "--out", "scan.nii.gz"], "the scan itself"),
        (["scan.nii.gz", "--out", "mask.png"], "must end in .nii"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--stats", "s.txt"], "--stats FILE.json"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--preview", "p.jpg"], "--preview FILE.png"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--reference", "no.nii"], "from --reference"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--model", "none.onnx"], "from --model"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--frame", "3", "--model", "model.onnx"], "no frame 3"),
        (["scan.nii.gz", "--out", "m.nii.gz", "--max-ram", "some"], "2GB or 800MB"),
        (
            ["scan.nii.gz", "--out", "m.nii.gz", "--max-ram", "20MB", "--model", "model.onnx"],
            "--max-ram allows 20.00 MB",
        ),
        (
            ["scan.nii.gz", "--out", "m.nii.gz", "--reference", "small.nii", "--model", "model.onnx"],
            "not on the same grid",
        ),
        (["scan.nii.gz", "--out", "m.nii.gz", "--reference", "scan.nii.gz", "--model", "model.onnx"], "like a scan"),
        (["scan.nii.gz", "--out", "old.nii.gz", "--model", "model.onnx"], "--overwrite"),
        ([".", "--out", "masks", "--model", "model.onnx"], "is inside"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_said_before_anything_is_written(here, args, word):
    put(here / "small.nii", voxels=np.zeros((4, 4, 4), np.uint8))
    put(here / "old.nii.gz")
    before = sorted(here.rglob("*"))
    with pytest.raises(InputError, match=word):
        mona(*args)
    assert sorted(here.rglob("*")) == before


def test_which_model(here, monkeypatch):
    for n, name in enumerate(("one", "two", "three")):
        (here / "runs" / name).mkdir(parents=True)
        path = models.write(here / "runs" / name / ("model.onnx" if n else "model-int8.onnx"))
        os.utime(path, (n, n) if name != "one" else (50, 50))
    assert find_model().as_posix() == "runs/one/model-int8.onnx"
    monkeypatch.setenv("MONA_MODEL", "runs/two")
    assert find_model().as_posix() == "runs/two/model.onnx"
    assert find_model(here / "model.onnx") == here / "model.onnx"
    with pytest.raises(InputError, match="contains no model"):
        find_model(here / "runs")


def test_within_max_ram_the_masks_are_the_same(folder):
    (folder / "scans" / "bad.nii.gz").unlink()
    mona("scans", "--out", "free", "--model", "model.onnx")
    mona("scans", "--out", "held", "--model", "model.onnx", "--max-ram", "4GB")
    for path in (folder / "free").rglob("*.nii.gz"):
        assert path.read_bytes() == (folder / "held" / path.relative_to(folder / "free")).read_bytes()


def test_two_files_of_one_case_are_refused(here):
    put(here / "scans" / "a.nii")
    put(here / "scans" / "a.nii.gz")
    with pytest.raises(InputError, match="the same case"):
        find_jobs(here / "scans", here / "masks")
