"""A run that was killed and resumed leaves the same metrics.jsonl as one that never was."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_infer.errors import InputError
from mona_train.run.metrics import MetricsLog, read


def test_records_come_back_in_order_and_exactly(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(1, stage="acr", lr=0.1 + 0.2, classes={"LV": 1e-300}, asd=None)
        assert path.read_text().endswith("}\n")  # flushed
        log.write(2, supervised=math.inf)
    assert list(read(path)) == [
        {"step": 1, "stage": "acr", "lr": 0.1 + 0.2, "classes": {"LV": 1e-300}, "asd": None},
        {"step": 2, "supervised": math.inf},
    ]
    assert path.read_text().splitlines()[0] == (
        '{"step": 1, "stage": "acr", "lr": 0.30000000000000004, "classes": {"LV": 1e-300}, "asd": null}'
    )


@settings(deadline=None)
@given(st.floats())
def test_every_float_comes_back(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    path = tmp_path_factory.getbasetemp() / "floats.jsonl"
    path.unlink(missing_ok=True)
    with MetricsLog(path) as log:
        log.write(1, loss=value)
    ((found,),) = ([record["loss"]] for record in read(path))
    assert found == value or (math.isnan(found) and math.isnan(value))


def write(log: MetricsLog, first: int, last: int) -> None:
    for step in range(first, last + 1):
        log.write(step, loss=1 / step)


@pytest.mark.parametrize("kept", [0, 4])
@pytest.mark.parametrize("cut", [0, 1, 9])
def test_a_resumed_run_writes_the_same_file(tmp_path: Path, kept: int, cut: int) -> None:
    """The checkpoint knows of `kept` records; the kill came later, perhaps in the middle of a line."""
    with MetricsLog(tmp_path / "whole") as log:
        write(log, 1, 10)
    with MetricsLog(tmp_path / "killed") as log:
        write(log, 1, kept)
        position = log.position()
        write(log, kept + 1, 7)
    os.truncate(tmp_path / "killed", (tmp_path / "killed").stat().st_size - cut)
    with MetricsLog(tmp_path / "killed") as log:
        log.truncate(position)
        assert log.position() == position
        write(log, kept + 1, 10)
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_position_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    with MetricsLog(tmp_path / "m") as log:
        write(log, 1, 3)
        assert not synced  # each line would cost a wait for the disk
        size = (tmp_path / "m").stat().st_size
        assert log.position() == size
        assert synced == [path.stat().st_ino for path in (tmp_path / "m", tmp_path)]  # its name, too


def test_a_file_that_is_not_the_checkpoints_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with MetricsLog(path) as log:
        write(log, 1, 3)
        size, before = log.position(), path.read_bytes()
        for position, words in ((size + 1, f"found {size} bytes in all"), (size - 1, "found another text")):
            with pytest.raises(InputError, match=words) as caught:
                log.truncate(position)
            assert str(path) in str(caught.value)
        assert path.read_bytes() == before
        log.truncate(size)
        assert path.read_bytes() == before
        log.truncate(0)
        assert path.read_bytes() == b""


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with MetricsLog(path) as log:
        log.write(1, name="é")
        log.write(2, name="é")
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for size in range(second, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert [r["step"] for r in read(path)] == [1]
    path.write_bytes(whole[:-1])  # all but the end of the line
    assert [r["step"] for r in read(path)] == [1, 2]
    path.write_bytes(whole + b"\0\0\0")  # what a file system may leave after a power cut
    assert [r["step"] for r in read(path)] == [1, 2]
    path.write_bytes(b"")
    assert list(read(path)) == []


@pytest.mark.parametrize("line", ["{", "3", "\xff", ""])
def test_any_other_damage_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(b'{"step": 1}\n' + line.encode("latin-1") + b'\n{"step": 2}\n')
    records = read(path)
    assert next(records) == {"step": 1}
    with pytest.raises(InputError, match=f"{path}, line 2: expected a JSON object"):
        next(records)


def test_no_path_writes_nowhere() -> None:
    with MetricsLog(None) as log:
        log.truncate(0)
        write(log, 1, 3)
        assert log.position() == 0


def test_the_step_is_given_once(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log, pytest.raises(TypeError):
        log.write(1, **{"step": 2})
    assert json.dumps(list(read(tmp_path / "m"))) == "[]"
