"""The real `mona train`: killed and interrupted runs end as if nothing had happened; what it refuses, and how.

Runs that are to be killed are processes of their own.  All others are called in this one, which has imported torch.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.small_runs import write_dataset
from helpers.small_settings import kept
from helpers.train_commands import DATA, RUN, SETTINGS, SMALL, mona, setting, start

from mona_train.cli import train
from mona_train.config.presets import PRESETS
from mona_train.config.schema import Config
from mona_train.methods.registry import methods, stages_of
from mona_train.run import checkpoint
from mona_train.run.folder import read_config, write_config
from mona_train.run.metrics import read

PRETRAINING, ALL = 8, 16  # records of the first stage, and of both


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set of 7 hearts in it: 2 with labels, 3 without, 1 to validate and 1 to test on."""
    folder = tmp_path_factory.mktemp("work")
    write_dataset(folder / "hearts")
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A run that nobody disturbed."""
    done = mona(place, *RUN, "--out", "runs/whole")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "wrote runs/whole"
    return place / "runs/whole"


# ---- killed


class Moment(NamedTuple):
    """Some seconds after metrics.jsonl has so many records; None: after the start of the process."""

    records: int | None
    seconds: float


def kill_at(moments: list[Moment], place: Path, folder: Path, threads: int = 1) -> list[int]:
    """Start or resume, kill, and so on; the codes that processes ended with."""
    return [_killed(moment, place, folder, threads) for moment in moments]


def _killed(moment: Moment, place: Path, folder: Path, threads: int) -> int:
    begun = _begun(folder)
    process = start(place, *_command(folder), threads=threads)
    if moment.records is not None:
        _wait_for(process, folder, moment.records, begun)
    time.sleep(moment.seconds)
    process.kill()
    process.communicate()
    return process.returncode


def _command(folder: Path) -> list[Any]:
    """One that was killed before it wrote run.toml has nothing to resume, and may be started again."""
    return ["train", "--resume", folder] if (folder / "run.toml").exists() else [*RUN, "--out", folder]


def _begun(folder: Path) -> int:
    log = folder / "log.txt"
    return log.read_text().count(", seed ") if log.exists() else 0


def _wait_for(process: subprocess.Popen[str], folder: Path, records: int, begun: int) -> None:
    """`begun`: the processes that trained in this folder before; records of theirs are still there at first."""
    file = folder / "metrics.jsonl"
    while process.poll() is None:
        if _begun(folder) > begun and file.read_bytes().count(b"\n") >= records:
            return
        time.sleep(0.002)


def ends_like(whole: Path, folder: Path) -> None:
    found, expected = kept(folder), kept(whole)
    assert {*found} == {*expected}  # nothing half-written is left behind
    assert [name for name in expected if found[name] != expected[name]] == []


def finish(place: Path, folder: Path, threads: int) -> None:
    process = start(place, *_command(folder), threads=threads)
    _, err = process.communicate()
    assert process.returncode == 0, err


def test_killed_in_either_stage_it_ends_the_same(place: Path, whole: Path) -> None:
    folder, draw = place / "runs/killed", random.Random(0)
    first = Moment(draw.randint(1, PRETRAINING - 1), draw.uniform(0, 0.1))
    second = Moment(draw.randint(PRETRAINING + 1, ALL - 4), draw.uniform(0, 0.1))
    assert kill_at([first, second], place, folder) == [-signal.SIGKILL] * 2
    assert list(read(folder / "metrics.jsonl"))[-1]["step"] > 12
    assert not (folder / "results.json").exists()
    assert mona(place, *_command(folder)).code == 0
    ends_like(whole, folder)


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 2])
def test_killed_ten_times_it_ends_the_same(threads: int, place: Path) -> None:
    """From the first import to the last file, the second stage always among them."""
    whole, folder, draw = place / f"runs/whole{threads}", place / f"runs/killed{threads}", random.Random(threads)
    finish(place, whole, threads)
    starting = [Moment(None, draw.uniform(0, 6)) for _ in range(3)]
    late = [Moment(draw.randint(PRETRAINING + 1, ALL - 4), draw.uniform(0, 0.1))]
    training = [Moment(n, draw.uniform(0, 0.1)) for n in draw.sample(range(1, ALL + 1), 6)]
    codes = kill_at([*starting, *sorted([*training, *late])], place, folder, threads)
    # one that is killed as it ends may have ended
    assert {*codes} <= {-signal.SIGKILL, 0} and codes.count(-signal.SIGKILL) >= 7
    finish(place, folder, threads)
    ends_like(whole, folder)


# ---- Ctrl-C


def test_ctrl_c_tells_how_to_go_on(place: Path, whole: Path) -> None:
    folder = place / "runs/inter rupted"
    process = start(place, *RUN, "--out", "runs/inter rupted")
    _wait_for(process, folder, 3, 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "mona: interrupted" and "Traceback" not in err
    words, _, command = out.splitlines()[-1].partition("; resume with: ")
    _, facts = checkpoint.load(folder / "checkpoints/last.safetensors")
    assert words == f"stopped after step {facts['step']}" and 6 <= facts["step"] < 24
    assert "interrupted" in (folder / "log.txt").read_text()
    program, *rest = shlex.split(command)
    assert (program, rest) == ("mona", ["train", "--resume", "runs/inter rupted"])
    done = mona(place, *rest)
    assert done.code == 0, done.err
    ends_like(whole, folder)


@pytest.mark.full
def test_a_second_ctrl_c_does_not_wait_for_the_step(place: Path) -> None:
    """A step of several seconds; tests/train/engine/test_session.py has the same to the instruction."""
    heavy = {**SETTINGS, "size": "256x256", "width": "2", "batch.unlabelled": "16"}
    folder = place / "runs/twice"
    process = start(place, *RUN, *setting(heavy), "--out", folder)
    while process.poll() is None and not _begun(folder):
        time.sleep(0.01)
    for seconds in (0.5, 0.2):
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130 and "stopped after" not in out and "Traceback" not in err
    assert not (folder / "checkpoints").exists()


# ---- run.toml


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, Path]]:
    """What `mona train` makes of its options, instead of a run."""
    found: list[tuple[Config, Path]] = []
    monkeypatch.setattr(train, "_run", lambda config, folder, **_: found.append((config, folder)))
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", methods())
def test_run_toml_holds_all_of_a_run(
    method: str, preset: str, asked: list[tuple[Config, Path]], tmp_path: Path
) -> None:
    assert mona(tmp_path, "train", "--dataset", "acdc", "--method", method, "--preset", preset).code == 0
    words = ["--ratio", "0.05", "--seed", "3", "--split-seed", "4", "--steps", "77", "--pretrain", "none"]
    words += ["--data", "some where", "--set", "optimiser.kind=sgd", "--set", "size=64x96", "--set", "pixels=0"]
    words += ["--set", "window=none"]
    assert mona(tmp_path, "train", "--dataset", "./da ta", "--method", method, *words).code == 0
    for config, _ in asked:
        write_config(config, tmp_path)
        assert read_config(tmp_path) == config
        text = (tmp_path / "run.toml").read_text()
        assert [name for name in _names(config) if f"{name} = " not in text and f"# {name}: none" not in text] == []
    assert (asked[1][0].steps, asked[1][0].size, asked[1][0].split_seed) == (77, (64, 96), 4)


def _names(table: Any) -> Iterator[str]:
    """Of every setting, however deep."""
    values = table.items() if isinstance(table, dict) else [(f.name, getattr(table, f.name)) for f in fields(table)]
    for name, value in values:
        if is_dataclass(value) or isinstance(value, dict):
            yield from _names(value)
        else:
            yield name


def test_principles_by_name(asked: list[tuple[Config, Path]], tmp_path: Path) -> None:
    words: list[str]
    for words in ([], ["--principles", ""], ["--principles", "diversity,tailness"], ["--preset", "cpu"]):
        assert mona(tmp_path, "train", "--dataset", "acdc", "--preset", "paper", *words).code == 0
    found = [config.stages["acr"].principles for config, _ in asked]
    assert found == [("tailness", "consistency", "diversity"), (), ("diversity", "tailness"), ()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--preset", "quick"], "supervised"),
        (["--preset", "quick", "--pretrain", "glcon"], "glcon"),
        (["--preset", "quick", "--pretrain", "none"], "none"),
        (["--preset", "quick", "--method", "mean-teacher"], "default"),  # which has none
        (["--preset", "paper"], "default"),
    ],
    ids=" ".join,
)
def test_the_first_stage_is_what_was_asked_for_or_what_the_preset_prefers(
    words: list[str], expected: str, asked: list[tuple[Config, Path]], tmp_path: Path
) -> None:
    assert mona(tmp_path, "train", "--dataset", "acdc", *words).code == 0
    ((config, _),) = asked
    assert config.pretrain == expected
    assert [*config.stages] == [stage.name for stage in stages_of(config.method, expected)]


def test_run_toml_alone_runs_again(place: Path, whole: Path) -> None:
    folder = place / "runs/again"
    folder.mkdir()
    shutil.copy(whole / "run.toml", folder)
    assert mona(place, "train", "--resume", "runs/again").code == 0
    ends_like(whole, folder)


def test_a_finished_run_resumed_stays_what_it_is(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place / "runs/finished")
    done = mona(place, "train", "--resume", "runs/finished")
    assert done.code == 0 and done.out.splitlines()[-1] == "wrote runs/finished"
    ends_like(whole, place / "runs/finished")


def test_a_run_that_is_not_named_gets_a_name_of_its_own(asked: list[tuple[Config, Path]], tmp_path: Path) -> None:
    for _ in range(3):
        mona(tmp_path, "train", "--dataset", "data/acdc", "--ratio", "0.05")
        (tmp_path / asked[-1][1]).mkdir(parents=True)
    assert [str(folder) for _, folder in asked] == [f"runs/acdc-mona-5pc{n}" for n in ("", "-2", "-3")]


# ---- what a run tells


def test_what_a_run_leaves_and_says(place: Path, whole: Path) -> None:
    files = {*kept(whole), "log.txt", "machine.json"}
    assert files == {
        *("run.toml", "resolved.json", "metrics.jsonl", "results.json", "log.txt", "machine.json", "parity.npz"),
        *("checkpoints/last.safetensors", "checkpoints/best.safetensors"),
        *(f"pictures/step-{n:06d}.png" for n in (8, 12, 16, 24)),
    }
    results = json.loads((whole / "results.json").read_text())
    assert results["chosen"] == "best" and results["best"]["step"] in (16, 24)  # of the last stage alone
    assert {*results["validation"]} == {"last", "best"} and results["test"]["dsc"] >= 0
    assert len(list(read(whole / "metrics.jsonl"))) == ALL


@pytest.mark.parametrize(("tests", "words"), [(1, "no validation cases"), (0, "no cases to measure on")])
def test_without_validation_the_last_network_is_taken_and_it_says_so(tests: int, words: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "hearts", 4, tests)  # too few to spare one
    done = mona(
        tmp_path, *DATA, "--method", "unet-l", "--ratio", "0.5", "--steps", "2", *setting(SMALL), "--out", "run"
    )
    assert done.code == 0, done.err
    said = " ".join(done.out.split())  # lines may be broken anywhere
    assert words in said and "the last network is taken" in said
    assert json.loads((tmp_path / "run/results.json").read_text())["chosen"] == "last"
    assert not (tmp_path / "run/checkpoints/best.safetensors").exists()


def test_profile_measures_and_trains_nothing(place: Path) -> None:
    done = mona(place, *RUN, "--out", "runs/profiled", "--profile")
    assert done.code == 0, done.err
    assert "whole step" in done.out and "student, 2. pass" in done.out
    assert not (place / "runs/profiled").exists()


# ---- lists


def test_method_help_lists_every_method_and_pretraining(place: Path) -> None:
    from mona_train.methods.registry import methods, pretraining

    done = mona(place, "train", "--method", "help")
    assert done.code == 0 and done.err == ""
    listed, stages = done.out.split("pre-training (--pretrain):\n")
    for line, method in zip(listed.splitlines()[1:], methods().values(), strict=True):
        assert line.split()[0] == method.name
        assert method.summary in line and line.endswith(f"({method.paper} {method.year})")
    assert [line.split()[0] for line in stages.splitlines()] == ["default", "none", *pretraining()]
    assert "the default of mona" in stages


def test_dataset_help_lists_every_data_set(place: Path) -> None:
    from mona_train.data.adapters import adapters

    done = mona(place, "train", "--dataset", "help")
    assert done.code == 0
    for line, adapter in zip(done.out.splitlines()[1:-1], adapters().values(), strict=True):
        assert line.split(maxsplit=1) == [adapter.name, adapter.title]


# ---- refused


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train"], "choose a data set with --dataset"),
        ([*RUN, "--set", "optimiser.lrr=1"], "did you mean optimiser.lr?"),
        ([*RUN, "--set", "acr.querys=1"], "did you mean acr.queries?"),
        ([*RUN, "--set", "optimiser.lr=fast"], "expected a number"),
        ([*RUN, "--set", "optimiser.lr"], "KEY=VALUE"),
        ([*RUN, "--set", "optimiser.lr=-1"], "learning rate"),
        ([*RUN, "--set", "precision=8"], "bf16-mixed"),
        ([*RUN, "--set", "size=33x32"], "multiples of 16"),
        ([*RUN, "--set", "pixels=96"], "size has no effect here: slices keep their shape, with about 96 pixels"),
        ([*RUN, "--set", "pixels=8"], "pixels must be from 16 to 4096, or 0"),
        ([*RUN, "--set", "window=20x20"], "multiples of 16"),
        ([*RUN, "--set", "window=64x64"], "between 1x1 and 32x32"),
        ([*RUN, "--set", "window=wide"], "full, auto or a size"),
        ([*RUN, "--set", "batch.unlabelled=0"], "batch.unlabelled"),
        ([*RUN, "--set", "acr.norm=ln"], "does not fit"),
        ([*RUN, "--set", "acr.queries=0"], "acr.queries must be 1 or greater"),
        ([*RUN, "--seed", "-1"], "the seed must be 0 or greater, found -1"),
        ([*RUN, "--steps", "0"], "steps, batch.labelled and the intervals"),
        ([*RUN, "--ratio", "2"], "at most 1"),
        ([*RUN, "--method", "mean-techer"], "did you mean mean-teacher?"),
        ([*RUN, "--pretrain", "gcl"], "unknown pre-training 'gcl'; choose 'none' or 'byol' or 'glcon'"),
        ([*RUN, "--preset", "papr"], "paper, gpu, cpu, quick"),
        ([*RUN, "--principles", "tailness,beauty"], "unknown principle beauty"),
        ([*RUN, "--dataset", "acdcc"], "did you mean acdc?"),
        ([*RUN, "--dataset", "./nowhere"], "nowhere is not a folder"),
        (["train", "--resume", "runs/nowhere"], "runs/nowhere is not the folder of a run"),
        (["train", "--resume", "hearts"], "hearts is not the folder of a run"),
        ([*RUN, "--out", "runs/whole"], "mona train --resume runs/whole"),
    ],
    ids=lambda v: " ".join(v[-2:]) if isinstance(v, list) else "",
)
def test_what_cannot_be_run_is_refused_as_input_error(
    words: list[str], expected: str, place: Path, whole: Path
) -> None:
    before = {*place.glob("runs/*")}
    done = mona(place, *words)
    assert done.code == 2
    assert done.err.startswith("mona: ") and done.err.count("\n") == 1 and expected in done.err
    assert {*place.glob("runs/*")} == before


@pytest.mark.parametrize("method", ["mona", "mean-teacher"])
@pytest.mark.parametrize("ratio", [[], ["--ratio", "1"]], ids=["", "1"])
def test_semi_supervised_learning_without_unlabelled_slices_is_refused_before_it_starts(
    method: str, ratio: list[str], place: Path
) -> None:
    before = {*place.glob("runs/*")}
    done = mona(place, *DATA, "--method", method, *ratio, *setting(SMALL))
    assert done.code == 2 and done.err.count("\n") == 1
    assert "--ratio" in done.err and "unet-f" in done.err
    assert {*place.glob("runs/*")} == before


def test_help_is_quick() -> None:
    code = "import sys; sys.argv = ['mona', 'train', '--help']\nfrom mona_infer.cli.main import main\n"
    code += "try: main()\nexcept SystemExit as e: print(e.code or 0, sorted({'numpy', 'torch'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "0 []"
    assert all(option in out for option in ("--dataset", "--ratio", "--principles", "--set", "--resume", "--profile"))
