"""The real `mona label next` on hearts of 32 x 32 pixels, one of which is unlike all others."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers.small_runs import write_dataset
from helpers.train_commands import SMALL, mona, setting

from mona_infer.serving.advised import FILE, FORMAT
from mona_infer.serving.state import default_state

LABELLED, STRANGE = 4, "heart6"
SETTINGS = SMALL | {"batch.labelled": "4", "every.validate": "40", "post_process": "false", "optimiser.lr": "0.003"}
TRAIN = ["train", "--dataset", "hearts", "--preset", "paper", "--method", "unet-l", "--steps", "80"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Hearts 0 to 3 have labels, 4 to 8 none, 9 is for testing; a run that learned from the labels."""
    folder = tmp_path_factory.mktemp("label")
    write_dataset(folder / "hearts", patients=10)
    for n in range(LABELLED, 9):
        (folder / f"hearts/labelsTr/heart{n}.nii.gz").unlink()
    path = folder / f"hearts/imagesTr/{STRANGE}_0000.nii.gz"
    image = nib.load(path)
    stripes = np.random.default_rng(0).integers(0, 60_000, image.shape).astype(np.float32)
    nib.save(nib.Nifti1Image(stripes, image.affine), path)
    done = mona(folder, *TRAIN, *setting(SETTINGS), "--out", "runs/first")
    assert done.code == 0, done.err
    return folder


def advice(place, *words):
    done = mona(place, "label", "next", "hearts", "--json", *words)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_strange_heart_is_first_and_labelled_ones_never_appear(place):
    found = advice(place, "--count", "9")
    assert (found["format"], found["run"], found["labelled"], found["candidates"]) == (FORMAT, "first", LABELLED, 5)
    names = [one["patient"] for one in found["patients"]]
    assert sorted(names) == [f"heart{n}" for n in range(LABELLED, 9)] and names[0] == STRANGE
    first = found["patients"][0]
    assert first["scans"] == [STRANGE] and first["reason"].endswith("unlike any labelled patient")
    assert first["distance"] == max(one["distance"] for one in found["patients"])
    assert advice(place, "--count", "9") == found  # again, the same to the last digit


def test_a_table_and_what_to_do_next(place, tmp_path):
    done = mona(place, "label", "next", "hearts", "--count", "2", "--run", "runs/first", "--json", tmp_path / "a.json")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows[:2]] == ["1", "2"] and rows[0][1] == STRANGE
    assert f"{LABELLED} patient(s) labelled, 5 not; asked the network of first (step 80)." in done.out
    assert "mona train" in done.out
    assert done.out.splitlines()[-1].removeprefix("wrote ").endswith("a.json")
    assert len(json.loads((tmp_path / "a.json").read_text())["patients"]) == 2


def test_for_the_server(place):
    done = mona(place, "label", "next", "hearts", "--serve")
    assert done.code == 0, done.err
    written = place / "runs/.serve" / default_state(place / "hearts").name / FILE
    assert json.loads(written.read_text())["patients"][0]["patient"] == STRANGE
    assert str(place) not in written.read_text()


def test_what_is_labelled_since_the_run_is_no_candidate(place):
    label = place / f"hearts/labelsTr/{STRANGE}.nii.gz"
    shutil.copy(place / "hearts/labelsTr/heart0.nii.gz", label)
    try:
        found = advice(place)
        assert STRANGE not in [one["patient"] for one in found["patients"]] and found["labelled"] == LABELLED + 1
    finally:
        label.unlink()


def test_where_all_have_labels_those_that_the_run_did_not_use_stand_in(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "runs/first", run)
    data = write_dataset(tmp_path / "hearts", patients=10)
    found = json.loads(mona(tmp_path, "label", "next", data, "--run", run, "--json").out)
    assert found["hidden"] and [one["patient"] for one in found["patients"]].count("heart0") == 0
    assert found["candidates"] == 5


def test_errors_are_one_sentence(place, tmp_path):
    def refused(folder, *words):
        done = mona(folder, "label", "next", *words)
        assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
        return done.err

    few = write_dataset(tmp_path / "few", patients=3)
    assert "no finished run in runs learned from few" in refused(tmp_path, "few")
    assert "learned from other data (folder in" in refused(tmp_path, "few", "--run", place / "runs/first")
    assert "learned from other data" in refused(tmp_path, "phantom", "--run", place / "runs/first")
    assert "not the folder of a run" in refused(place, "hearts", "--run", "hearts")
    assert few.is_dir()
    labels = [place / f"hearts/labelsTr/heart{n}.nii.gz" for n in range(LABELLED)]
    kept = {path: path.read_bytes() for path in labels}
    try:
        for path in labels:
            path.unlink()
        assert "no training patient of hearts has a label now" in refused(place, "hearts")
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
