"""Lines of results.jsonl: what is read, what is left out with a note, what is refused by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.bench_results import line, write

from mona_infer.errors import InputError
from mona_train.bench.reading import read_results


def test_a_row_is_read_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    given = line("mona", seed=1, principles=["tailness"], colour="blue")
    [row], notes = read_results(write(tmp_path / "results.jsonl", [given]))
    assert notes == []
    assert (row.method, row.seed, row.principles, row.ratio, row.classes) == (
        *("mona", 1, ("tailness",), 0.05),
        ("RV", "Myo", "LV"),
    )
    assert row.summary()["dsc"] == given["scores"]["validation"]["best"]["dsc"]
    assert row.summary("last")["dsc"] == given["scores"]["validation"]["last"]["dsc"]
    assert len(row.case_dsc()) == 20 and len(set(row.patients().values())) == 10
    assert np.mean(list(row.case_dsc().values())) == pytest.approx(row.summary()["dsc"])
    assert read_results(tmp_path)[0] == [row]  # the folder, instead of its file


def test_the_papers_rules_count_every_case_that_has_a_number(tmp_path: Path) -> None:
    given = line("mona", patients=1)
    for case, (dsc, asd) in zip(given["cases"]["validation"], ((1.0, None), (0.5, 3.0)), strict=True):
        for name in given["classes"]:
            case[name] |= {"legacy_dsc": dsc, "legacy_asd": asd}
    [row], _ = read_results(write(tmp_path / "results.jsonl", [given]))
    assert (row.legacy("dsc"), row.legacy("asd")) == (0.75, 3.0)


def test_a_torn_last_line_is_named_and_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "results.jsonl", [line(seed=0), line(seed=1)], end='{"row": "abc", "sco')
    rows, [note] = read_results(path)
    assert len(rows) == 2
    assert "line 3 is incomplete" in note


def test_one_run_may_be_a_row_of_two_tables_but_not_twice_of_one(tmp_path: Path) -> None:
    first = line()
    again, other = {**first, "hardware": "another"}, {**first, "table": "components"}
    rows, [note] = read_results(write(tmp_path / "results.jsonl", [first, again, other]))
    assert [(row.table, row.hardware) for row in rows] == [("acdc", "another"), ("components", first["hardware"])]
    assert "line 2 repeats row" in note


def damaged(**values: Any) -> dict[str, Any]:
    found = {**line(), **values}
    return {key: value for key, value in found.items() if value != "gone"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (damaged(method="gone"), "'method' is missing"),
        (damaged(seed="zero"), "'seed' must be of type int, found 'zero'"),
        (damaged(scores={}), "the scores of row .* are incomplete"),
        (damaged(classes=["RV", "Myo", "LV", "LA"]), "the scores of row .* are incomplete"),
        (damaged(chosen="worst"), "the scores of row .* are incomplete"),
        ([1, 2], "expected a JSON object with a row"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_by_its_number(tmp_path: Path, bad: Any, says: str) -> None:
    path = write(tmp_path / "results.jsonl", [line(), bad, line(seed=2)])
    with pytest.raises(InputError, match=f"line 2: {says}"):
        read_results(path)


def test_a_torn_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "results.jsonl", [line()])
    path.write_text('{"row": "abc\n' + path.read_text())
    with pytest.raises(InputError, match="line 1: expected a JSON object"):
        read_results(path)
    with pytest.raises(InputError, match=r"nothing\.jsonl does not exist"):
        read_results(tmp_path / "nothing.jsonl")


def test_cases_that_do_not_add_up_to_the_summary_are_refused(tmp_path: Path) -> None:
    bad = line()
    bad["cases"]["validation"][0]["RV"]["dsc"] -= 0.5
    with pytest.raises(InputError, match="measure the row again"):
        read_results(write(tmp_path / "results.jsonl", [bad]))
    bad["cases"]["validation"][0]["RV"]["dsc"] = float("nan")
    with pytest.raises(InputError, match="is not a number"):
        read_results(write(tmp_path / "results.jsonl", [json.loads(json.dumps(bad))]))
