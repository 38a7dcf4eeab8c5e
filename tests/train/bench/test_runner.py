"""The runner, with processes that only pretend: how many at once, in what order, and what becomes of those killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mona_infer.task import CARDIAC
from mona_train.bench import runner
from mona_train.bench.places import KILLED
from mona_train.bench.plan import TO_DO, Plan, Planned
from mona_train.bench.results import Results
from mona_train.bench.rows import Row, config_key, pretraining_key
from mona_train.bench.runner import OFTEN, Runner
from mona_train.bench.show import Show
from mona_train.bench.sources import Source
from mona_train.bench.task import DONE, FAILED, Task
from mona_train.run import checkpoint
from mona_train.run.folder import read_config
from mona_train.run.lock import is_held, only_one

NAMES = ("unet-l", "tailness", "consistency", "diversity")


class Pretended:
    """A process that polls twice, then does what a script says: an exit code, or "done"."""

    def __init__(self, run: Path, does: Any, until: int | None) -> None:
        self.run, self.does, self.until, self.polls, self.told = run, does, until, 0, []

    def poll(self) -> int | None:
        self.polls += 1
        if self.polls < 3 and not self.told:
            return None
        if self.told:
            return 130
        if self.does != "done":
            return int(self.does)
        if self.until is not None:
            checkpoint.save(self.run / "checkpoints/last.safetensors", {"w": torch.zeros(1)}, {"step": self.until})
        else:
            (self.run / "results.json").write_text("{}")
        return 0

    def stop(self) -> None:
        self.told.append("stop")

    def kill(self) -> None:
        self.told.append("kill")


class Pretending:
    """A place; `script` says, for the n-th process of a run, what becomes of it."""

    def __init__(self, script: Callable[[str, int], Any]) -> None:
        self.script, self.started, self.jobs, self.most = script, [], [], 0

    def start(self, words: list[str], log: Path, threads: int) -> Pretended:
        assert words[:2] == ["train", "--resume"] and read_config(Path(words[2]))
        run = Path(words[2])
        count = self.started.count(run.name)
        self.started.append(run.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("first\nmona: what it said last\n\n")
        does = self.script(run.name, count)
        self.jobs.append(Pretended(run, does, int(words[4]) if len(words) > 3 else None))
        alive = [job for job in self.jobs if job.polls < 3]
        self.most = max(self.most, len(alive))
        return self.jobs[-1]


def line_of(run: Path, table: str) -> dict[str, Any]:
    scores = {"validation": {"best": {"dsc": 0.5}}}
    return {"row": run.name, "table": table, "chosen": "best", "seconds": 1.0, "scores": scores}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runner, "PAUSE", 0.0)
    monkeypatch.setattr(runner, "line_of", line_of)
    yield


def plan_in(folder: Path) -> Plan:
    """One row of labels alone, and three that share a pre-training."""
    rows = [Row("t", "acdc", "unet-l", "quick", 0.05)]
    rows += [Row("t", "acdc", "mona", "quick", 0.05, principles=name) for name in NAMES[1:]]
    shared = [pretraining_key(row.config, "", "") for row in rows]
    kept = zip(NAMES, rows, shared, strict=True)
    source = Source(CARDIAC)
    return Plan(
        "t", tuple(Planned(row, name, key, source, TO_DO, folder / "rows" / name) for name, row, key in kept), folder
    )


def ran(folder: Path, script: Callable[[str, int], Any], *, jobs: int = 1) -> tuple[Pretending, list[Task], Results]:
    place, results = Pretending(script), Results(folder / "results.jsonl")
    failed = Runner(plan_in(folder), results, place, jobs=jobs, threads=1, show=Show(4, {})).run()
    return place, failed, results


def done(*_: Any) -> str:
    return "done"


def rows_in(results: Results) -> list[str]:
    return [line["row"] for line in results.lines]


def test_each_row_once_and_the_shared_pretraining_before_the_first_that_needs_it(tmp_path: Path) -> None:
    place, failed, results = ran(tmp_path, done)
    (shared,) = (tmp_path / "pretraining").iterdir()
    assert place.started == ["unet-l", shared.name, *NAMES[1:]] and not failed and rows_in(results) == [*NAMES]
    assert place.most == 1
    # every row has begun as a copy of it, and has settings of its own
    for name in NAMES[1:]:
        run = tmp_path / "rows" / name
        assert (run / "checkpoints/last.safetensors").read_bytes() == (
            shared / "checkpoints/last.safetensors"
        ).read_bytes()
    keys = {config_key(read_config(tmp_path / "rows" / name)) for name in NAMES}
    assert len(keys) == 4


@pytest.mark.parametrize("jobs", [2, 9])
def test_so_many_side_by_side(jobs: int, tmp_path: Path) -> None:
    place, failed, results = ran(tmp_path, done, jobs=jobs)
    assert place.most == min(jobs, 3) and not failed and sorted(rows_in(results)) == sorted(NAMES)


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    ran(tmp_path, done)
    place, failed, results = ran(tmp_path, done)  # its plan says that all are to do, but their runs have finished
    assert not place.started and not failed and rows_in(results) == [*NAMES]
    # the bench was killed between the end of a row and its line
    content = (tmp_path / "results.jsonl").read_bytes()
    (tmp_path / "results.jsonl").write_bytes(content[: content.index(b"\n", content.index(b"\n") + 1) + 9])
    place, failed, results = ran(tmp_path, done)
    assert not place.started and not failed and rows_in(results) == [*NAMES]


@pytest.mark.parametrize("code", [KILLED, 130, 137])
def test_a_killed_row_is_resumed(code: int, tmp_path: Path) -> None:
    place, failed, results = ran(tmp_path, lambda name, count: code if count == 0 else "done")
    assert not failed and sorted(rows_in(results)) == sorted(NAMES)
    assert all(place.started.count(name) == 2 for name in place.started)


def test_a_row_that_is_killed_again_and_again_fails_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, failed, results = ran(tmp_path, lambda name, _: KILLED if name == "tailness" else "done")
    assert [task.run.name for task in failed] == ["tailness"] and place.started.count("tailness") == OFTEN
    assert sorted(rows_in(results)) == ["consistency", "diversity", "unet-l"]
    assert f"it was killed {OFTEN} times in a row" in capsys.readouterr().err
    _, failed, results = ran(tmp_path, done)  # the next bench tries again
    assert not failed and sorted(rows_in(results)) == sorted(NAMES)


def test_a_row_that_fails_says_why_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, failed, results = ran(tmp_path, lambda name, _: 1 if name == "unet-l" else "done")
    assert [task.run.name for task in failed] == ["unet-l"] and place.started.count("unet-l") == 1
    assert rows_in(results) == [*NAMES[1:]]
    assert "failed: unet-l, 5 %, seed 0: what it said last" in capsys.readouterr().err


def test_rows_whose_pretraining_failed_fail_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, failed, results = ran(tmp_path, lambda name, _: "done" if name in NAMES else 2)
    assert len(failed) == 4 and rows_in(results) == ["unet-l"]
    assert capsys.readouterr().err.count("its pre-training failed") == 3


def test_a_process_that_ends_well_without_results_has_failed(tmp_path: Path) -> None:
    _, failed, results = ran(tmp_path, lambda name, _: 0 if name == "diversity" else "done")
    assert [task.run.name for task in failed] == ["diversity"] and len(results.lines) == 3


def test_a_row_that_a_killed_bench_has_left_running_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "rows" / "unet-l"
    looks = iter([True, True, True])

    def held(folder: Path) -> bool:
        if folder != run or not next(looks, False):
            return False
        (run / "results.json").write_text("{}")  # it finishes meanwhile
        return True

    run.mkdir(parents=True)
    monkeypatch.setattr(runner, "is_held", held)
    place, failed, results = ran(tmp_path, done)
    assert "unet-l" not in place.started and not failed and sorted(rows_in(results)) == sorted(NAMES)


def test_a_lock_is_seen_and_not_taken(tmp_path: Path) -> None:
    assert not is_held(tmp_path) and not list(tmp_path.iterdir())
    with only_one(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path) and not list(tmp_path.iterdir())


def test_changed_code_or_data_are_not_taken_for_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "line_of", lambda run, table: {**line_of(run, table), "row": "another"})
    _, failed, results = ran(tmp_path, done)
    assert len(failed) == 4 and not results.lines


def test_ctrl_c_stops_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, results = Pretending(done), Results(tmp_path / "results.jsonl")
    bench = Runner(plan_in(tmp_path), results, place, jobs=2, threads=1, show=Show(4, {}))

    def interrupted(_: float) -> None:
        if not any(job.told for job in place.jobs):
            raise KeyboardInterrupt

    monkeypatch.setattr(runner.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert [job.told for job in place.jobs] == [["stop"], ["stop"]]
    assert not [task for task in bench.tasks if task.state in (DONE, FAILED)]


def test_a_resumed_row_keeps_its_threads_and_its_progress_is_read(tmp_path: Path) -> None:
    planned = plan_in(tmp_path).rows[0]
    task = Task("row", planned.run, planned.config, planned)
    assert task.threads(4) == 4 and task.step() == 0 and task.last_words() == "it said nothing"
    planned.run.mkdir(parents=True)
    (planned.run / "machine.json").write_text(json.dumps({"threads": 1}))
    (planned.run / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"ste')
    assert task.threads(4) == 1 and task.step() == 20
    (planned.run / "machine.json").write_text(json.dumps({"threads": "mixed"}))
    assert task.threads(4) == 4
