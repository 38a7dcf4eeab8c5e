"""Cohorts on a local cluster of two workers: nothing is lost with a worker; of bad scans, only they are blamed."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.cohorts import cohort, files, hooked, segment
from helpers.launching import PATIENCE

pytest.importorskip("distributed", reason="distributed, of the extra `cluster`, is not installed")
TOOLS = Path(__file__).parents[3] / "tools"
sys.path.insert(0, str(TOOLS))
import check_cohort  # noqa: E402

CLUSTER = ("--cluster", "local:2")


def test_workers_are_killed_and_every_mask_is_there_once(tmp_path):
    """A small sample of `tools/check_cohort.py`; the workers do not import torch."""
    scans = cohort(tmp_path, 60)
    assert segment(tmp_path, "wanted").wait(PATIENCE) == 0
    options = ("--model", str(tmp_path / "model.onnx"), *CLUSTER, "--summary", str(tmp_path / "all.csv"))
    env = hooked(tmp_path, pause=0.2)
    run = check_cohort.segment(scans, tmp_path / "masks", *options, kills=3, pause=0.4, env=env)
    assert run.code == 0, run.output
    assert run.kills == 3
    masks = files(tmp_path / "masks")
    records = {name for name in masks if name.startswith(".reports/")}
    assert {name: masks[name] for name in masks if name not in records} == files(tmp_path / "wanted")
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["case"] for row in rows] == sorted(f"scan{n:03d}" for n in range(60))
    assert all(float(row["LV ml"]) > 0 for row in rows)
    assert len(records) == 60
    assert not (tmp_path / "torch").exists()


@pytest.mark.full
def test_2000_scans_and_20_kills():
    """It checks the bytes of every mask; what it measures is printed, not judged: other programs may be running."""
    done = subprocess.run([sys.executable, TOOLS / "check_cohort.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["killed"]["kills"] == 20


def poisoned(tmp_path, count):
    scans = cohort(tmp_path, count)
    (scans / "scan005.nii.gz").rename(scans / "poison.nii.gz")
    env = hooked(tmp_path, pause=0)
    process = segment(tmp_path, "masks", *CLUSTER, "--json", "all.json", env=env)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 1, output
    assert "the process that segmented it, and nothing else, was killed (SIGKILL)" in output
    assert f"1 of {count} cases failed (poison); the others are done" in output
    assert f"{count - 1} segmented, 0 had a mask already, 1 failed" in output
    wanted = {f"scan{n:03d}.nii.gz" for n in range(count)} - {"scan005.nii.gz"}
    assert set(files(tmp_path / "masks")) == wanted


def test_a_scan_that_kills_its_worker_is_named_and_its_neighbours_are_done(tmp_path):
    poisoned(tmp_path, 24)


@pytest.mark.full
def test_one_poisonous_scan_among_200(tmp_path):
    poisoned(tmp_path, 200)


def test_ctrl_c_leaves_nothing_half_written_and_the_repeated_command_completes(tmp_path):
    cohort(tmp_path, 30)
    env = hooked(tmp_path, pause=0.3)
    process = segment(tmp_path, "masks", *CLUSTER, env=env)
    end = time.monotonic() + PATIENCE
    while not any((tmp_path / "masks").glob("*.nii.gz")) and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everyone hears of it
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
    before = files(tmp_path / "masks")
    assert 0 < len(before) < 30
    assert all(name.startswith("scan") for name in before), "a temporary file was left"
    process = segment(tmp_path, "masks", "--num-parts", "1", "--part", "0")
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0
    assert f"{30 - len(before)} segmented, {len(before)} had a mask already, 0 failed" in output
    assert segment(tmp_path, "wanted").wait(PATIENCE) == 0
    assert files(tmp_path / "masks") == files(tmp_path / "wanted")
