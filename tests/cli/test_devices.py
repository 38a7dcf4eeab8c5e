"""`mona train` in two processes, started by Fabric and by torchrun: one run, one voice, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from helpers.launching import TOLERANCE, TORCHRUN, Command
from helpers.small_runs import QUICK, write_dataset

from mona_train.run import checkpoint, metrics

pytestmark = pytest.mark.xdist_group("processes")
SETTINGS = {
    "size": "32x32",
    "width": "0.25",
    "batch.labelled": "2",
    "batch.unlabelled": "2",
    "every.log": "1",
    "every.save": "4",
    "every.validate": "6",
    "glcon.bank": "8",
    "acr.bank": "8",
    **QUICK,
}
TRAIN = ["train", "--dataset", "data", "--ratio", "0.4", "--preset", "paper", "--steps", "12"]
TRAIN += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a data set in it that is not prepared yet."""
    place = tmp_path_factory.mktemp("place").resolve()
    write_dataset(place / "data")
    return place


@pytest.fixture(scope="module")
def finished(place: Path) -> tuple[Path, str]:
    """A run of two processes that Fabric started, and what it said."""
    code, said = Command(place, *TRAIN, "--devices", 2).ends()
    assert code == 0, said
    return place / "runs" / "data-mona-40pc", said


def check_run(run: Path, *, started: int = 1) -> None:
    """Whole, and written by one process."""
    steps = [record["step"] for record in metrics.read(run / "metrics.jsonl") if "stage" in record]
    assert steps == list(range(1, 13))
    log = (run / "log.txt").read_text()
    assert log.count(" of 12, seed 0") == started and log.count("step 12: validation") == 1
    assert len(list(run.glob("events.*"))) == started
    assert json.loads((run / "results.json").read_text())["validation"].keys() == {"last", "best"}
    assert not list(run.rglob(".*"))


def test_devices_2_trains_in_one_folder(finished: tuple[Path, str]) -> None:
    run, said = finished
    assert [path.name for path in run.parent.iterdir()] == [run.name]  # two processes looked for a free name
    check_run(run)
    assert said.count("; validation: ") == 1 and said.count(f"wrote runs/{run.name}") == 1
    assert "in each of 2 processes" in said and "distributed_backend" not in said


def test_bad_input_is_said_once_before_processes_start(tmp_path: Path) -> None:
    code, said = Command(tmp_path.resolve(), "train", "--dataset", "acdc", "--preset", "quick", "--devices", 2).ends()
    assert code == 2 and said.startswith("mona: ") and said.count("\n") == 1


def test_divergence_stops_both_processes_and_is_said_once(place: Path) -> None:
    code, said = Command(place, *TRAIN, "--set", "optimiser.lr=1e30", "--out", "nan", "--devices", 2).ends(within=120)
    assert code == 1 and said.count("training diverged at step 2") == 1 and "Traceback" not in said, said
    assert not (place / "nan" / "checkpoints").exists()


@pytest.mark.full
def test_torchrun_does_the_same_run(place: Path, finished: tuple[Path, str]) -> None:
    """It starts the processes itself, without --devices."""
    code, said = Command(place, *TRAIN, "--out", "by-torchrun", launcher=TORCHRUN).ends()
    assert code == 0, said
    run = place / "by-torchrun"
    check_run(run)
    for name in ("run.toml", "metrics.jsonl", "results.json", "checkpoints/last.safetensors"):
        assert (run / name).read_bytes() == (finished[0] / name).read_bytes(), name


@pytest.mark.full
def test_ctrl_c_stops_both_and_resume_goes_on(place: Path, finished: tuple[Path, str]) -> None:
    run = place / "stopped"
    command = Command(place, *TRAIN, "--out", run.name, "--devices", 2)
    command.steps_are_logged(run, 3)
    os.killpg(command.child.pid, signal.SIGINT)
    code, said = command.ends(within=60)
    assert code == 130 and "resume with: mona train --resume stopped --devices 2" in said, said
    assert "Traceback" not in said and said.count("mona: interrupted") == 1
    stopped_at = checkpoint.load(run / "checkpoints" / "last.safetensors")[1]["step"]
    assert 3 <= stopped_at < 12 and not (run / "results.json").exists()

    code, said = Command(place, "train", "--resume", run.name, "--devices", 2).ends()
    assert code == 0, said
    check_run(run, started=2)
    both = [checkpoint.load(folder / "checkpoints" / "last.safetensors")[0] for folder in (run, finished[0])]
    assert both[0].keys() == both[1].keys()
    for name, tensor in both[0].items():
        if "running_" in name:  # their mean over processes was taken once more, where the run was stopped
            torch.testing.assert_close(tensor, both[1][name], rtol=TOLERANCE, atol=TOLERANCE)
        else:
            assert torch.equal(tensor, both[1][name]), name


@pytest.mark.full
def test_ctrl_c_of_torchrun_leaves_a_run_that_can_go_on(place: Path) -> None:
    """torchrun's own exit code is not 130; it gives processes 30 seconds."""
    run = place / "torchrun-stopped"
    command = Command(place, *TRAIN, "--out", run.name, launcher=TORCHRUN)
    command.steps_are_logged(run, 3)
    os.killpg(command.child.pid, signal.SIGINT)
    code, said = command.ends(within=60)
    assert code != 0 and "resume with: mona train --resume torchrun-stopped" in said, said
    assert 3 <= checkpoint.load(run / "checkpoints" / "last.safetensors")[1]["step"] < 12


@pytest.mark.full
def test_when_the_first_process_fails_the_other_does_not_wait(place: Path) -> None:
    (place / "broken").mkdir()
    (place / "broken" / "checkpoints").write_text("no folder")
    command = Command(place, *TRAIN, "--out", "broken", "--devices", 2)
    command.steps_are_logged(place / "broken", 3)
    code, said = command.ends(within=120)
    assert code == 2 and "mona: broken/checkpoints" in said, said
