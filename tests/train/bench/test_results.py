"""results.jsonl: appended, never rewritten, and whole again after a kill at any byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mona_infer.errors import InputError
from mona_train.bench.results import Results, read_lines


def kept_in(path: Path) -> list[dict[str, str]]:
    return list(read_lines(path)[0].values())


LINES = [{"row": f"r{n}", "table": "t", "config": "c", "content": "d", "code": f"k{n}", "name": "Ä"} for n in range(3)]


def test_lines_come_back_in_order_and_a_row_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "bench" / "results.jsonl"
    results = Results(path)
    for line in [*LINES, LINES[1]]:
        results.append(line)
    assert kept_in(path) == LINES == Results(path).lines
    results.append({**LINES[0], "table": "other"})  # one run may be a row of two tables
    assert len(kept_in(path)) == 4
    assert results.find("other", "r0") and not results.find("other", "r1") and results.elsewhere("r1") == LINES[1]


def test_a_write_that_was_killed_at_any_byte_is_repaired_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for line in LINES:
        Results(path).append(line)
    content = path.read_bytes()
    whole = content.index(b"\n", content.index(b"\n") + 1) + 1  # two lines
    for cut in range(whole, len(content) + 1):
        path.write_bytes(content[:cut])
        kept = kept_in(path)
        assert kept == (LINES if cut >= len(content) - 1 else LINES[:2])  # all but its line break is a whole line
        results = Results(path)
        for line in [*LINES, {**LINES[0], "row": "next"}]:
            results.append(line)
        assert path.read_bytes().startswith(content) and [line["row"] for line in kept_in(path)][3:] == ["next"]


def test_damage_elsewhere_is_named_and_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for bad in (b"{", b"[]", b'{"row": 3, "table": "t"}'):
        path.write_bytes(bad + b"\n" + json.dumps(LINES[0]).encode() + b"\n")
        with pytest.raises(InputError, match=r"results\.jsonl line 1: expected a JSON object with a row"):
            Results(path)


def test_rows_of_other_code_are_told_apart(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for line in LINES:
        results.append(line)
    assert results.by_other_code("t", "c", "d") == LINES
    assert not results.by_other_code("t", "c", "other data") and not results.by_other_code("other", "c", "d")


def test_a_number_that_json_does_not_have_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="JSON"):
        Results(path).append({**LINES[0], "dsc": float("nan")})
    assert not path.exists() or path.read_bytes() == b""
