"""The real `mona bench`: rows measured, shared pre-training, kills, other code, finished runs that are added."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bench_runs import STEPS, start_inside, write_list
from helpers.small_runs import write_dataset
from helpers.small_settings import kept
from helpers.train_commands import mona, start
from PIL import Image

from mona_infer.viewing.pictures import TILE
from mona_train.bench.places import Here
from mona_train.bench.results import Results
from mona_train.cli import bench as command
from mona_train.run.folder import read_config

BENCH = ["bench", "small.toml"]
TIMES = ("seconds", "processor_seconds", "peak_memory", "finished")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    write_dataset(folder / "hearts")
    write_list(folder)
    return folder


@pytest.fixture(scope="module")
def measured(place: Path) -> Path:
    """A bench that nobody disturbed, with one thread as its rows would have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Here, "start", start_inside)
        done = mona(place, *BENCH, "--threads", 1)
    torch.set_num_threads(threads)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "wrote bench/results.jsonl" and "3 rows, 0 of them finished" in done.out
    return place / "bench"


@pytest.fixture(autouse=True)
def short_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a pass through the U-Net is timed for ten seconds."""
    monkeypatch.setattr("mona_train.engine.profile.PATIENCE", 0.1)


def same(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what tells the time, sorted."""
    plain = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    return sorted(plain, key=lambda line: str(line["row"]))


# ---- what it leaves


def test_a_line_for_every_row(measured: Path) -> None:
    lines = Results(measured / "results.jsonl").lines
    assert [(line["method"], line["pretrain"], line["principles"]) for line in lines] == [
        ("unet-l", "none", []),
        ("mona", "glcon", []),
        ("mona", "glcon", ["consistency"]),
    ]
    for line in lines:
        run = measured / "rows" / line["run"]
        results = json.loads((run / "results.json").read_text())
        assert line["scores"] == {"validation": results["validation"], "test": results["test"]}
        assert (line["table"], line["dataset"], line["ratio"], line["seed"]) == ("small", "hearts", 0.4, 0)
        assert line["steps"] == STEPS and line["preset"] == "paper" and line["settings"]["width"] == 0.25
        assert line["classes"] == ["RV", "Myo", "LV"] and line["threads"] == 1 and len(line["code"]) == 16
        assert 0 < line["processor_seconds"] < 3 * line["seconds"]
        assert line["peak_memory"] > 1e8 and line["hardware"] and line["labelled_patients"] == 2
        assert [step for step, _ in line["curve"]][-1] == STEPS
        (case,) = line["cases"]["validation"]
        chosen = line["scores"]["validation"][line["chosen"]]["classes"]
        for name in line["classes"]:  # a single case is its own mean
            assert case[name]["dsc"] == pytest.approx(chosen[name]["dsc"])
            assert case[name]["asd"] is None or case[name]["asd"] == pytest.approx(chosen[name]["asd"])
            assert case[name].keys() == {"dsc", "asd", "legacy_dsc", "legacy_asd"}
        assert case["case"] == case["patient"] == "heart1"


def test_rows_from_a_shared_pretraining_are_the_runs_they_would_be_alone(measured: Path, place: Path) -> None:
    """Bit for bit: checkpoints, metrics, results, pictures."""
    assert len(list((measured / "pretraining").iterdir())) == 1
    line = Results(measured / "results.jsonl").lines[-1]
    shared, alone = measured / "rows" / line["run"], place / "alone"
    alone.mkdir()
    shutil.copy(shared / "run.toml", alone)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    done = mona(place, "train", "--resume", "alone")
    torch.set_num_threads(threads)
    assert done.code == 0, done.err
    found, expected = kept(shared), kept(alone)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert len([name for name in expected if name.startswith("pictures/")]) == 2


def test_finished_rows_are_never_run_again(measured: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (measured / "results.jsonl").read_bytes()
    monkeypatch.setattr(Here, "start", None)  # would fail
    done = mona(place, *BENCH)
    assert done.code == 0 and "3 rows, 3 of them finished" in done.out, done.err
    # the same rows in a list of another name: their lines are taken over
    (place / "again.toml").write_text((place / "small.toml").read_text())
    assert mona(place, "bench", "again.toml").code == 0
    lines = Results(measured / "results.jsonl").lines
    assert [line["table"] for line in lines] == ["small"] * 3 + ["again"] * 3
    assert [line["row"] for line in lines[:3]] == [line["row"] for line in lines[3:]]
    (measured / "results.jsonl").write_bytes(before)


def test_rows_of_other_code_are_kept_apart(
    measured: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Results(measured / "results.jsonl").lines
    other = [{**line, "code": "another", "row": f"other{n}", "commit": "0123456"} for n, line in enumerate(lines)]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in other))
    done = mona(place, *BENCH, "--dry-run", "--threads", 1, "--out", tmp_path)
    assert "3 rows were measured by other code (0123456): they are kept apart" in done.out, done
    assert "3 rows, 0 of them finished" in " ".join(done.out.split())
    monkeypatch.setattr(Here, "start", None)  # would fail
    done = mona(place, *BENCH, "--any-code", "--out", tmp_path)
    assert done.code == 0 and "3 rows, 3 of them finished" in done.out and "they count as finished" in done.out
    assert len(Results(tmp_path / "results.jsonl").lines) == 3


def test_a_dry_run_says_rows_hours_and_memory_and_writes_nothing(place: Path, measured: Path, tmp_path: Path) -> None:
    shutil.copy(place / "small.toml", tmp_path)
    shutil.copytree(place / "hearts", tmp_path / "hearts")
    before = sorted(tmp_path.rglob("*"))
    done = mona(tmp_path, *BENCH, "--dry-run", "--jobs", 2, "--threads", 1)
    assert done.code == 0 and sorted(tmp_path.rglob("*")) == before, done.err
    said = " ".join(done.out.split())
    assert "unet-l, 40 %, seed 0" in said and "2 rows share one pre-training" in said
    assert "3 rows, 0 of them finished; 3 to do: about" in said and "GB of memory. These are estimates" in said
    assert "so the size of a slice is guessed" in said
    said = " ".join(mona(place, *BENCH, "--dry-run", "--threads", 1).out.split())
    assert "3 rows, 3 of them finished; 0 to do" in said and "guessed" not in said


def test_finished_runs_are_added_as_rows(measured: Path, place: Path, tmp_path: Path) -> None:
    lines = Results(measured / "results.jsonl").lines
    runs = [measured / "rows" / line["run"] for line in lines]
    done = mona(place, "bench", "add", *runs, "--to", tmp_path / "new", "--table", "small")
    assert done.code == 0, done.err
    assert same(Results(tmp_path / "new/results.jsonl").lines) == same(lines)
    # a run of an older version: no cases in its results, no machine.json
    old = shutil.copytree(runs[0], tmp_path / "old")
    results = json.loads((old / "results.json").read_text())
    (old / "results.json").write_text(json.dumps({k: v for k, v in results.items() if k != "cases"}))
    (old / "machine.json").unlink()
    done = mona(place, "bench", "add", old, "--to", tmp_path / "older")
    assert done.code == 0 and "its code is not known" in done.out, done.err
    (line,) = Results(tmp_path / "older/results.jsonl").lines
    assert line["cases"] == lines[0]["cases"] and line["code"] == "unknown" and line["table"] == "hearts"
    assert line["row"] != lines[0]["row"] and line["seconds"] is not None
    done = mona(place, "bench", "add", old, "--to", tmp_path / "older", "--table", "small", "--same-code")
    assert Results(tmp_path / "older/results.jsonl").lines[1]["row"] == lines[0]["row"]
    assert "was there already" in mona(place, "bench", "add", old, "--to", tmp_path / "older").out
    # one whose scores are not what it said
    results["validation"][results["chosen"]]["dsc"] += 0.1
    (old / "results.json").write_text(json.dumps({k: v for k, v in results.items() if k != "cases"}))
    done = mona(place, "bench", "add", old, "--to", tmp_path / "wrong")
    assert done.code == 1 and "measured again, the validation DSC is" in done.err
    (old / "results.json").unlink()
    done = mona(place, "bench", "add", old, "--to", tmp_path / "wrong")
    assert done.code == 2 and "has not finished" in done.err and not (tmp_path / "wrong/results.jsonl").exists()


# ---- killed


def alive(run: Path) -> int:
    """Records of its metrics."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def records(folder: Path) -> int:
    return sum(map(alive, (*folder.glob("rows/*"), *folder.glob("pretraining/*"))))


def training(folder: Path) -> list[int]:
    """The processes that train rows of this bench now."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
        if "--resume" in words and str(folder) in words[words.index("--resume") + 1]:
            found.append(int(path.name))
    return found


def kill_all(bench: subprocess.Popen[str], folder: Path, which: str) -> None:
    victims = [*([bench.pid] if which != "row" else []), *(training(folder) if which != "bench" else [])]
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if which != "row":
        bench.communicate()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc to find the processes of rows")
def test_a_killed_bench_loses_nothing(measured: Path, place: Path, tmp_path: Path) -> None:
    """Bench and row killed in the middle of a row's training; then it goes on, with the same numbers."""
    out = tmp_path / "killed"
    bench = start(place, *BENCH, "--methods", "unet-l", "--threads", 1, "--out", out)
    while bench.poll() is None and not any(alive(run) >= 3 for run in out.glob("rows/*")):
        time.sleep(0.02)
    kill_all(bench, out, "both")
    done = start(place, *BENCH, "--methods", "unet-l", "--threads", 1, "--out", out)
    said = done.communicate()
    assert done.returncode == 0, said
    expected = [line for line in Results(measured / "results.jsonl").lines if line["method"] == "unet-l"]
    assert same(Results(out / "results.jsonl").lines) == same(expected)


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc to find the processes of rows")
def test_ten_kills_at_random_moments(measured: Path, place: Path, tmp_path: Path) -> None:
    """Of the bench, of rows, of both: no row lost, none twice, the same numbers."""
    out, moments, kills = tmp_path / "killed", random.Random(7), []
    while len(kills) < 10:
        bench = start(place, *BENCH, "--threads", 1, "--jobs", 2, "--out", out)
        if moments.random() < 0.7:  # in the middle of training; else while it starts
            wanted = records(out) + moments.randint(0, 2)
            while bench.poll() is None and records(out) < wanted:
                time.sleep(0.02)
        time.sleep(moments.uniform(0, 1))
        if bench.poll() is not None:
            break
        which = ("both", "row", "bench")[len(kills) % 3]
        kills.append((which, len(training(out)), records(out), len(Results(out / "results.jsonl").lines)))
        kill_all(bench, out, which)
        if which == "row":  # the bench resumes it
            time.sleep(moments.uniform(0, 3))
            kill_all(bench, out, "bench")
    print("killed, processes in training, records, rows finished:", *kills, sep="\n")
    done = start(place, *BENCH, "--threads", 1, "--jobs", 2, "--out", out)
    said = done.communicate()
    assert done.returncode == 0, said
    assert same(Results(out / "results.jsonl").lines) == same(Results(measured / "results.jsonl").lines)
    assert len(kills) == 10 and not training(out)


@pytest.mark.full
def test_ctrl_c_saves_every_row(place: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "interrupted"
    words = [*BENCH, "--threads", 1, "--jobs", 2, "--steps", 2000, "--out", out]
    bench = start(place, *words)
    while bench.poll() is None and sum(alive(run) >= 3 for run in out.glob("*/*")) < 2:
        time.sleep(0.05)
    bench.send_signal(signal.SIGINT)
    out_, err = bench.communicate()
    assert bench.returncode == 130 and "stopped; repeat the command to go on" in out_, (out_, err)
    assert "stopping 2 rows" in err and "Traceback" not in err and not training(out)
    logs = [path.read_text() for path in (out / "logs").iterdir()]
    assert len(logs) == 2 and all("stopped after step" in log for log in logs)


# ---- clusters


@pytest.mark.full
def test_two_local_workers_of_submitit_measure_the_same(measured: Path, place: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    out = tmp_path / "submitted"
    done = start(place, *BENCH, "--where", "local", "--jobs", 2, "--threads", 1, "--out", out)
    said = done.communicate()
    assert done.returncode == 0, said
    assert same(Results(out / "results.jsonl").lines) == same(Results(measured / "results.jsonl").lines)


def test_the_script_that_slurm_would_get(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    options = ["--slurm", "slurm_partition=gpu", "--slurm", "gpus_per_node=1", "--slurm", "timeout_min=600"]
    words = ["--methods", "unet-l", "--where", "slurm", "--threads", 3, *options, "--out", tmp_path]
    done = mona(place, *BENCH, *words, "--dry-run")
    assert done.code == 0, done.err
    script = done.out[done.out.index("#!/bin/bash") :]
    for wanted in ("partition=gpu", "gpus-per-node=1", "time=600", "cpus-per-task=3", "job-name=mona-bench"):
        assert f"#SBATCH --{wanted}\n" in script
    assert "-m submitit.core._submit" in script
    if shutil.which("sbatch") is None:
        refused(mona(place, *BENCH, *words), "sbatch was not found", "--where local")
    refused(mona(place, *BENCH, *words, "--slurm", "slurm_colour=red", "--dry-run"), "--slurm: ", "colour")


# ---- refused


def refused(done: Any, *words: str) -> None:
    assert done.code == 2 and "Traceback" not in done.err, done
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "unknown table 'nonsense'; choose one of acdc, mmwhs, lits"),
        (["none.toml"], "none.toml cannot be read"),
        (["small.toml", "--methods", "mine"], "no row of small.toml matches; its methods are unet-l, mona"),
        (["acdc", "--methods", "mine"], "unknown method 'mine'"),
        (["small.toml", "--seeds", "one"], "--seeds: expected numbers separated by commas, e.g. 0,1, found 'one'"),
        (["small.toml", "--ratios", "a"], "--ratios: expected numbers separated by commas, e.g. 0.01,0.05"),
        (["small.toml", "--set", "width"], "expected --set KEY=VALUE, found 'width'"),
        (["small.toml", "--set", "widht=1"], "did you mean width?"),
        (["small.toml", "--where", "moon"], "unknown --where 'moon'; choose here, local, slurm"),
        (["small.toml", "--where", "local", "--slurm", "gpu"], "expected --slurm KEY=VALUE"),
        (["add", "nowhere"], "nowhere is not the folder of a run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_is_one_sentence(words: list[str], said: str, place: Path, tmp_path: Path) -> None:
    more = ["--to", tmp_path / "out"] if words[0] == "add" else ["--out", tmp_path / "out"]
    refused(mona(place, "bench", *words, *more), said)
    assert not (tmp_path / "out" / "results.jsonl").exists()


def test_a_list_with_an_unknown_key_or_method(place: Path) -> None:
    text = (place / "small.toml").read_text()
    for before, after, said in (
        ("ratios", "ratio", "wrong.toml: unknown setting ratio; did you mean ratios?"),
        ('"unet-l"', '"unet-x"', "unknown method 'unet-x'; did you mean unet-"),
    ):
        (place / "wrong.toml").write_text(text.replace(before, after))
        refused(mona(place, "bench", "wrong.toml", "--dry-run"), said)


def test_one_bench_at_a_time(place: Path, tmp_path: Path) -> None:
    from mona_train.run.lock import only_one

    with only_one(tmp_path, command.LOCK, command.DOING):
        refused(mona(place, *BENCH, "--out", tmp_path), "another process is running rows in")


def test_the_tables_are_listed_and_help_is_where_it_is_looked_for(place: Path) -> None:
    assert "components    MONA with each set of its principles" in mona(place, "bench").out
    assert "--dry-run" in mona(place, "bench", "acdc", "--help").out
    shown = mona(place, "bench", "--help").out
    assert "add" in shown and "run" in shown


def test_a_row_that_has_not_begun_is_a_run_that_can_be_resumed_by_hand(measured: Path) -> None:
    """The runner's only trick: run.toml is written first, and a run without a checkpoint begins when it is resumed."""
    for run in (measured / "rows").iterdir():
        assert read_config(run).steps == STEPS


# ---- the report


def test_the_report_reads_what_was_measured(measured: Path, place: Path) -> None:
    rows = list(csv.DictReader(mona(place, "bench", "report", "--format", "csv").out.splitlines()))
    assert {row["method"] for row in rows} == {"UNet-L", "MONA, no principle", "MONA, consistency"}
    lines = {line["row"]: line for line in Results(measured / "results.jsonl").lines}
    best = [line["scores"]["validation"][line["chosen"]]["dsc"] for line in lines.values()]
    assert sorted(float(row["dsc"]) for row in rows) == pytest.approx(sorted(best), rel=1e-5)
    for row in rows:
        assert float(row["dsc_paper_rules"]) >= 0 and float(row["minutes"]) > 0


def test_its_panels_are_drawn_from_the_runs(measured: Path, place: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra `bench`)")
    done = mona(place, "bench", "report", "--out", tmp_path / "pages", "--runs", measured / "rows")
    assert done.code == 0, done.err
    panels = tmp_path / "pages" / "small-hearts-paper-16-steps-40pc-panels.png"
    with Image.open(panels) as picture:
        assert picture.width > 4 * TILE  # the slice, labels alone or mixing alone, MONA, the reference
    page = (tmp_path / "pages" / "small-hearts-paper-16-steps.md").read_text()
    assert panels.name in page and "licence" in page
    assert "cannot be compared (one patient) with" in page
