"""`--page` of `mona segment` and `mona evaluate`: a page of each case and one of all, also after a kill."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.dicom_files import write_series
from typer.testing import CliRunner

from mona_infer.cli.main import app
from mona_infer.task import Intensity
from mona_infer.viewing import niivue

THICK = np.diag([1.5, 1.5, 8.0, 1.0])


@pytest.fixture(autouse=True)
def without_niivue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(niivue, "packed", lambda: None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, two scans with references, and one file that is no scan."""
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    for folder in ("scans/a", "refs/a"):
        (tmp_path / folder).mkdir(parents=True)
    for n, name in enumerate(("one", "a/two")):
        scan = models.scan(n, (24, 22, 5))
        nib.save(nib.Nifti1Image(scan, THICK), tmp_path / f"scans/{name}.nii.gz")
        truth = np.minimum((scan + 150 * n) // 250, 3).astype(np.uint8)  # `one` is segmented better than `two`
        nib.save(nib.Nifti1Image(truth, THICK), tmp_path / f"refs/{name}.nii.gz")
    (tmp_path / "scans" / "bad.nii").write_bytes(b"no scan")
    (tmp_path / "refs" / "bad.nii").write_bytes(b"no mask")
    return tmp_path


def mona(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def held(page: Path, name: str) -> Any:
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_page_of_one_case_says_what_the_report_says(here: Path) -> None:
    done = mona("segment", "scans/one.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx", "--reference",
                "refs/one.nii.gz", "--page", "p.html", "--stats", "s.json")  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert done.output.splitlines()[-1] == "wrote m.nii.gz, p.html, s.json"
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    about = held(here / "p.html", "about")
    assert about["name"] == "one" and about["made_by"] == "model.onnx, fp32" and str(here) not in str(about)
    shown = about["frames"][0]
    assert shown["classes"] == case["classes"] and shown["scores"] == case["scores"]
    assert [list(row) for row in shown["slices"]["areas"]] == [
        [pytest.approx(case["classes"][c["name"]]["areas_mm2"][k], abs=0.06) for c in about["classes"]]
        for k in range(5)
    ]
    assert len(shown["slices"]["sure"]) == 5 and all(0.25 < s <= 1 for s in shown["slices"]["sure"])
    weighted = [case["classes"][c["name"]]["confidence"] for c in about["classes"]]
    assert min(weighted) - 0.01 <= np.mean(shown["slices"]["sure"]) <= max(weighted) + 0.01


@pytest.mark.parametrize("flip", [False, True])
def test_the_confidence_of_a_slice_is_shown_at_that_slice(here: Path, flip: bool) -> None:
    """Slices stored from head to foot are shown from foot to head; where the scan is flat, the network is sure."""
    scan = models.scan(0, (24, 22, 5))
    scan[:, :, 1] = 870  # in the middle of the brightest band, where the others are not
    affine = np.diag([1.5, 1.5, -8.0 if flip else 8.0, 1.0])
    nib.save(nib.Nifti1Image(scan, affine), here / "s.nii.gz")
    done = mona("segment", "s.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx", "--page", "p.html")
    assert done.exit_code == 0, done.exception
    sure = held(here / "p.html", "about")["frames"][0]["slices"]["sure"]
    assert int(np.argmax(sure)) == (3 if flip else 1)


def test_a_folder_has_a_page_of_all_cases_the_doubtful_first(here: Path) -> None:
    words = ["segment", "scans", "--out", "masks", "--model", "model.onnx", "--reference", "refs", "--page", "all.html"]
    done = mona(*words)
    assert "1 of 3 cases failed (bad)" in str(done.exception)
    listed = held(here / "all.html", "all")
    assert [c["name"] for c in listed["cases"]] == ["bad", "a/two", "one"]
    assert listed["cases"][0]["page"] is None and listed["cases"][0]["error"].startswith("bad.nii is too short")
    assert listed["cases"][1]["dsc"] < listed["cases"][2]["dsc"]
    for case in listed["cases"][1:]:
        page = here / case["page"]
        assert held(page, "about")["name"] == case["name"] and case["thumbnail"].startswith("data:image/jpeg;base64,")
        assert (page.parent / held(page, "about")["back"]).resolve() == here / "all.html"

    # Again, as after a kill: what is there is listed; a page that is not is made from the files
    (here / "all_cases" / "one.html").unlink()
    (here / "scans" / "bad.nii").unlink()
    (here / "refs" / "bad.nii").unlink()
    done = mona(*words)
    assert done.exit_code == 0 and "0 segmented, 2 had a mask already" in done.output
    again = held(here / "all.html", "all")["cases"]
    assert [(c["name"], c["dsc"], c["ml"]) for c in again] == [
        (c["name"], c["dsc"], c["ml"]) for c in listed["cases"][1:]
    ]


def test_names_of_cases_are_links_that_work(here: Path) -> None:
    (here / "scans" / "one.nii.gz").rename(here / "scans" / "50% #1?.nii.gz")
    done = mona("segment", "scans", "--out", "masks", "--model", "model.onnx", "--page", "all.html")
    assert done.exit_code == 1
    links = {c["name"]: c["page"] for c in held(here / "all.html", "all")["cases"]}
    assert links["50% #1?"] == "all_cases/50%25%20%231%3F.html" and (here / "all_cases" / "50% #1?.html").exists()


def test_every_frame_of_a_cine(here: Path) -> None:
    cine = np.stack([models.scan(n, (24, 22, 5)) for n in range(3)], -1)
    nib.save(nib.Nifti1Image(cine, THICK), here / "cine.nii.gz")
    words = ["segment", "cine.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx", "--frame", "all"]
    done = mona(*words, "--page", "p.html", "--json", "r.json")
    assert done.exit_code == 0, done.exception
    (case,) = json.loads((here / "r.json").read_text())["cases"]
    about = held(here / "p.html", "about")
    assert about["cine"] == case["cine"] and [f["classes"] for f in about["frames"]] == [
        f["classes"] for f in case["frames"]
    ]


def test_a_window_of_the_model_is_what_is_shown(here: Path) -> None:
    task = replace(models.TASK, intensity=Intensity("window", 100, 700))
    models.write(here / "ct.onnx", task)
    done = mona("segment", "scans/one.nii.gz", "--out", "m.nii.gz", "--model", "ct.onnx", "--page", "p.html")
    assert done.exit_code == 0, done.exception
    assert held(here / "p.html", "about")["window"] == [100, 700]


def test_pages_of_an_evaluation(here: Path) -> None:
    for folder in ("scans", "refs"):
        (here / folder / "bad.nii").unlink()
        (here / folder / "a/two.nii.gz").rename(here / folder / "two.nii.gz")
    done = mona("segment", "scans", "--out", "masks", "--model", "model.onnx")
    assert done.exit_code == 0, done.exception
    words = ["evaluate", "masks", "refs", "--classes", "1=RV,2=Myo,3=LV", "--json", "r.json", "--page", "e.html"]
    for scans in ([], ["--scan", "scans"]):
        done = mona(*words, *scans)
        assert done.exit_code == 0, done.exception
        report = json.loads((here / "r.json").read_text())
        cases = held(here / "e.html", "all")["cases"]
        assert [c["name"] for c in cases] == ["two", "one"]
        for case in report["cases"]:
            page = here / "e_cases" / f"{case['case']}.html"
            shown = held(page, "about")["frames"][0]["scores"]
            assert shown["LV"]["dsc"] == pytest.approx(case["classes"]["3"]["dsc"])
            assert ('id="scan"' in page.read_text()) == bool(scans)
    done = mona("evaluate", "masks/one.nii.gz", "refs/one.nii.gz", "--page", "one.html", "--definition", "paper")
    assert done.exit_code == 0 and "Published empty-mask rule" in str(held(here / "one.html", "about")["rules"])
    for words, said in (
        (["--page", "e.txt"], "expected --page FILE.html"),
        (["--scan", "scans"], "add --page"),
        (["--page", "e.html", "--scan", "nowhere"], "does not exist"),
        (["--page", "e.html", "--scan", "masks/.."], "has no scan for"),
    ):
        assert said in str(mona("evaluate", "masks", "refs", *words).exception)


def test_what_cannot_be_a_page_is_told_before_the_network_starts(here: Path) -> None:
    words = ["segment", "scans/one.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx"]
    assert "expected --page FILE.html, found p.txt" in str(mona(*words, "--page", "p.txt").exception)
    (here / "file").write_text("")
    assert "cannot be written" in str(mona(*words, "--page", "file/p.html").exception)
    assert not (here / "m.nii.gz").exists()


def test_a_case_without_a_mask_leaves_no_page(here: Path) -> None:
    pytest.importorskip("highdicom", reason="highdicom, of the extra `dicom-seg`, is not installed")
    write_series(here / "series", models.scan(0, (24, 22, 5)), THICK)  # without what a DICOM-SEG must name
    done = mona("segment", "series", "--out", "m.dcm", "--model", "model.onnx", "--page", "p.html")
    assert "which is missing" in str(done.exception)
    assert not (here / "p.html").exists() and not (here / "m.dcm").exists()
