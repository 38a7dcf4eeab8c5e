"""A whole run: which network is kept, and what dying at any write or pressing Ctrl-C costs."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.small_runs import PATIENTS, TASK, small_cache, small_config, small_split
from helpers.small_settings import kept
from helpers.trainers import case_of
from lightning_fabric import Fabric
from torch import nn

from mona_infer.task import Task
from mona_train.config.schema import Config, Every
from mona_train.data.case import Case
from mona_train.engine import session
from mona_train.engine.session import Data, Interrupted, Session
from mona_train.engine.validate import summary, validate
from mona_train.export.parity import read_parity
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash
from mona_train.run.folder import write_config
from mona_train.run.load import load_run
from mona_train.run.metrics import read


def session_of(config: Config, folder: Path, *, val: int = 1, test: int = 0, labelled: int = 1) -> Session:
    cases = [case_of(n) for n in range(val + test)]
    parts = {"val": cases[:val], "test": cases[val:], "labelled": [case_of(PATIENTS + n) for n in range(labelled)]}
    resolved = SimpleNamespace(corners={}, levels={})
    data: Any = SimpleNamespace(
        cache=small_cache(), split=small_split(), task=TASK, resolved=resolved, look=None, **parts
    )
    return Session(config, folder, data, Fabric(devices=1, accelerator="cpu"), quiet=True)


def scripted(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> list[tuple[str, str]]:
    """Validation that finds these scores in turn; returns what it was asked: the weights and the cases."""
    asked, left = [], iter(scores)

    def measure(network: nn.Module, cases: list[Case], *_: Any, **__: Any) -> list[Any]:
        asked.append((weights_hash(network.state_dict()), ",".join(case.name for case in cases)))
        return []

    def report(*_: Any) -> dict[str, Any]:
        return {"dsc": next(left), "asd": 1.0, "classes": {}}

    monkeypatch.setattr(session, "validate", measure)
    monkeypatch.setattr(session, "summary", report)
    monkeypatch.setattr(Session, "_picture", lambda *_: None)
    return asked


def test_the_best_network_is_chosen_by_validation_of_the_last_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """method 1.5.6: best validation DSC for every method, never by test cases; the first of equals."""
    # after steps 2 to 8 (pre-training) and 10 to 16; then best and last on validation cases, and the test cases
    config = replace(small_config(), every=Every(validate=2, log=4, save=16))
    scores = [0.9, 0.8, 0.95, 0.99, 0.2, 0.6, 0.6, 0.5, 0.6, 0.5, 0.7]
    asked = scripted(monkeypatch, scores)
    results = session_of(config, tmp_path, test=1).run()
    assert results["best"] == {"step": 12, "dsc": 0.6} and results["chosen"] == "best"
    assert results["validation"]["last"]["dsc"] == 0.5 and results["validation"]["best"]["dsc"] == 0.6
    assert results["test"]["dsc"] == 0.7
    weights, cases = zip(*asked, strict=True)
    assert cases == ("heart0",) * 10 + ("heart1",)  # test cases once, at the very end
    assert weights[9] == weights[7] and weights[8] == weights[10] == weights[5]
    tensors, facts = checkpoint.load(tmp_path / "checkpoints" / "best.safetensors")
    assert weights_hash(checkpoint.unpack("student.unet", tensors)) == weights[5] and facts["step"] == 12
    assert json.loads((tmp_path / "results.json").read_text()) == results


def test_without_validation_cases_the_last_network_is_it(tmp_path: Path) -> None:
    config = replace(small_config("unet-l", steps=4), every=Every(validate=2, log=2, save=2))
    run = session_of(config, tmp_path, val=0, test=1)
    results = run.run()
    assert (results["chosen"], results["best"]) == ("last", None) and "validation" not in results
    assert not (tmp_path / "checkpoints" / "best.safetensors").exists()
    assert results["test"] == summary(validate(run.trainer.network, [case_of(0)], TASK, torch.device("cpu")), TASK)


# ---- the average, and post-processing


AVERAGING = Every(validate=2, log=4, save=16)


@pytest.mark.parametrize(("teacher", "student", "chosen"), [(0.7, 0.6, "teacher"), (0.6, 0.7, "student")])
def test_of_the_best_checkpoint_the_better_network_is_the_answer(
    teacher: float, student: float, chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Validations see the average; at the end the student of the best step is measured too.  Exported is what won."""
    config = replace(small_config("unet-l", steps=6, average=True), every=AVERAGING)
    best = max(teacher, student)
    # after steps 2, 4 and 6; the best step's teacher and student; best and last; the test case
    asked = scripted(monkeypatch, [0.1, 0.7, 0.3, teacher, student, best, 0.3, 0.2])
    write_config(config, tmp_path)
    results = session_of(config, tmp_path, test=1).run()
    assert results["best"] == {"step": 4, "dsc": 0.7} and results["chosen"] == "best"
    assert results["average"] == {"teacher": teacher, "student": student} and results["network"] == chosen
    tensors, facts = checkpoint.load(tmp_path / "checkpoints" / "best.safetensors")
    assert facts["answers"] == "teacher" and facts["step"] == 4
    of = {name: weights_hash(checkpoint.unpack(f"{name}.unet", tensors)) for name in ("teacher", "student")}
    weights = [weights for weights, _ in asked]
    assert of["teacher"] != of["student"] and weights[3:5] == [of["teacher"], of["student"]]
    assert weights[1] == of["teacher"] and weights[5] == weights[7] == of[chosen] and weights[6] == weights[2]
    assert load_run(tmp_path).weights == of[chosen] == read_parity(tmp_path / "parity.npz").weights
    # a run that has not finished answers with its average
    (tmp_path / "results.json").unlink()
    assert load_run(tmp_path).weights == of["teacher"]


def test_without_validation_cases_the_last_average_is_it(tmp_path: Path) -> None:
    config = replace(small_config("unet-l", steps=4, average=True), every=AVERAGING)
    write_config(config, tmp_path)
    run = session_of(config, tmp_path, val=0, test=1)
    results = run.run()
    assert (results["chosen"], results["network"]) == ("last", "teacher") and "average" not in results
    tensors, _ = checkpoint.load(tmp_path / "checkpoints" / "last.safetensors")
    assert load_run(tmp_path).weights == weights_hash(checkpoint.unpack("teacher.unet", tensors))


@pytest.mark.parametrize(("val", "on", "case"), [(1, "validation", "heart0"), (0, "labelled", f"heart{PATIENTS}")])
def test_post_processing_is_chosen_at_the_end_and_becomes_part_of_the_task(
    val: int, on: str, case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On validation cases, or without any on labelled ones; all that is measured afterwards has it."""
    config = replace(small_config("unet-l", steps=2, post_process=True), every=AVERAGING)
    write_config(config, tmp_path)
    chosen = replace(TASK, keep_largest=(2,), fill_holes=(3, 1))
    measured: list[tuple[str, Task]] = []

    def choose(task: Task, measure: Any) -> tuple[Task, dict[str, Any]]:
        assert task == TASK
        measure(replace(task, keep_largest=(1,)))
        measured.append(("chosen", task))
        return chosen, {"without": 0.5}

    def watched(network: nn.Module, cases: list[Case], task: Task, *more: Any, **options: Any) -> list[Any]:
        measured.extend((case.name, task) for case in cases)
        return validate(network, cases, task, *more, **options)

    monkeypatch.setattr(session, "choose_post_processing", choose)
    monkeypatch.setattr(session, "validate", watched)
    results = session_of(config, tmp_path, val=val, test=1).run()
    names = {"keep_largest": ["Myo"], "fill_holes": ["LV", "RV"]}
    assert results["post_processing"] == {**names, "gains": {"without": 0.5}, "on": on}
    start = measured.index((case, replace(TASK, keep_largest=(1,))))
    assert measured[start + 1] == ("chosen", TASK)
    after = ["heart0", "heart0", "heart1"] if val else ["heart0"]  # best, last and the test case
    assert measured[start + 2 :] == [(name, chosen) for name in after]
    assert load_run(tmp_path).task == chosen == read_parity(tmp_path / "parity.npz").task


def test_without_any_case_to_choose_on_there_is_no_post_processing(tmp_path: Path) -> None:
    """No volume is labelled in full: LiTS leaves out slices that show no body."""
    config = replace(small_config("unet-l", steps=2, post_process=True), every=AVERAGING)
    write_config(config, tmp_path)
    results = session_of(config, tmp_path, val=0, test=1, labelled=0).run()
    assert "post_processing" not in results and load_run(tmp_path).task == TASK


def test_cases_labelled_in_full_are_those_with_all_slices_in_use() -> None:
    """Of p01 two slices are, and p02 has no label to measure against."""
    split = replace(small_split(), labelled=(0, 1, 2, 3, 4, 5, 8, 9, 10, 11), unlabelled=(6, 7))
    names = [case.name for case in small_cache().cases]
    cases = [replace(case_of(n), name=name) for n, name in enumerate(names)]
    cases[2] = replace(cases[2], label=None)
    resolved: Any = SimpleNamespace(split=split, task=TASK, cases=lambda: cases)
    assert [case.name for case in Data(small_config("unet-l"), resolved, small_cache()).labelled] == names[:1]


class Died(BaseException):
    """Nobody catches this."""


def dying(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, before: bool) -> None:
    """The process ends just before or just after the given call of a function."""
    real, calls = getattr(owner, name), itertools.count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        last = next(calls) == call
        result = None if last and before else real(*args, **kwargs)
        if last:
            raise Died
        return result

    patch.setattr(owner, name, wrapped)


def resumed(config: Config, folder: Path) -> Session:
    run = session_of(config, folder, test=1)
    run.resume()
    return run


def test_dying_between_any_two_files_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between the record of a validation, its picture, best.safetensors, last.safetensors and results.json."""
    config = replace(small_config("unet-l", steps=4), every=Every(validate=2, log=1, save=1))
    session_of(config, tmp_path / "whole", test=1).run()
    expected = kept(tmp_path / "whole")
    assert {"results.json", "metrics.jsonl", "checkpoints/best.safetensors"} < {*expected}
    # saves: last after 1; best, last after 2; last after 3; (best,) last after 4
    saves = [(checkpoint, "save", call, before) for call in (1, 2, 3, 5) for before in (True, False)]
    others = [(session, "montage", 2, True), (session, "validate", 2, True), (session, "validate", 4, False)]
    results = [(session, "write_text", 1, before) for before in (True, False)]
    for number, (owner, name, call, before) in enumerate([*saves, *others, *results]):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch, pytest.raises(Died):
            dying(patch, owner, name, call, before=before)
            session_of(config, folder, test=1).run()
        resumed(config, folder).run()
        assert kept(folder) == expected, f"died {'before' if before else 'after'} call {call} of {name}"


def test_files_half_written_by_a_killed_process_are_cleared_away(tmp_path: Path) -> None:
    config = small_config("unet-l", steps=2)
    left = [".0123abcd.run.toml", ".0123abcd.results.json", "pictures/.0123abcd.step-000002.png"]
    left += ["checkpoints/.0123abcd.last.safetensors", "checkpoints/.0123abcd.best.safetensors"]
    own = [".git", ".notes.txt", "pictures/mine.png"]
    for name in (*left, *own):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    resumed(config, tmp_path).run()
    assert not [name for name in left if (tmp_path / name).exists()]
    assert all((tmp_path / name).read_text() == "half" for name in own)


# ---- Ctrl-C


def test_the_first_ctrl_c_finishes_the_step_and_saves_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, handler = small_config("unet-l", steps=6), signal.getsignal(signal.SIGINT)
    session_of(config, tmp_path / "whole", test=1).run()
    run = session_of(config, tmp_path / "run", test=1)
    real = run.trainer.step

    def step() -> Any:
        if run.trainer.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real()

    monkeypatch.setattr(run.trainer, "step", step)
    with pytest.raises(Interrupted):
        run.run()
    _, facts = checkpoint.load(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert facts["step"] == run.trainer.number == 3
    assert signal.getsignal(signal.SIGINT) is handler
    resumed(config, tmp_path / "run").run()
    assert kept(tmp_path / "run") == kept(tmp_path / "whole")


def test_the_second_ctrl_c_ends_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = small_config("unet-l", steps=6)
    run = session_of(config, tmp_path)
    finished = []

    def step() -> Any:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        finished.append(True)

    monkeypatch.setattr(run.trainer, "step", step)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert not finished and not (tmp_path / "checkpoints").exists()


def test_metrics_tell_of_both_stages_and_of_validations(tmp_path: Path) -> None:
    session_of(replace(small_config(), every=Every(validate=6, log=3, save=50)), tmp_path).run()
    records = list(read(tmp_path / "metrics.jsonl"))
    logged = [(r["step"], r["stage"]) for r in records if "stage" in r]
    # every 3rd step, and the last of each stage
    assert logged == [(n, "glcon") for n in (3, 6, 8)] + [(n, "acr") for n in (9, 12, 15, 16)]
    assert [r["step"] for r in records if "dsc" in r] == [6, 8, 12, 16]
