"""The page and /activelearning follow the order of `mona label next`, where there is one."""

import json
from pathlib import Path

import pytest

from mona_infer.serving.advised import FORMAT, advised_first
from mona_infer.serving.dataset import Case
from mona_infer.serving.predictions import Candidate, doubtful_first


def candidate(name, labelled="none"):
    return Candidate(Case(name, name[:2], Path(name), None, Path(name)), labelled, None)


CASES = [candidate("p1_ED"), candidate("p2_ED"), candidate("p2_ES"), candidate("p3_ED", "given"), candidate("p4_ED")]
BEFORE = ["p1_ED", "p2_ED", "p2_ES", "p4_ED", "p3_ED"]


def order(path):
    return [one.case.name for one in advised_first(path, doubtful_first)(CASES)]


def test_named_cases_come_first_and_labelled_ones_stay_last(tmp_path):
    path = tmp_path / "order.json"
    patients = [{"scans": ["p3_ED"]}, {"scans": ["p4_ED", "gone"]}, {"scans": ["p2_ES", "p2_ED"]}]
    path.write_text(json.dumps({"format": FORMAT, "patients": patients}))
    assert order(path) == ["p4_ED", "p2_ES", "p2_ED", "p1_ED", "p3_ED"]


@pytest.mark.parametrize(
    "text",
    [
        None, "", "[]", "{}", '{"format": "another", "patients": [{"scans": ["p4_ED"]}]}',
        json.dumps({"format": FORMAT, "patients": [3, {"scans": 5}, {"scans": [["p4_ED"]]}]}),
        json.dumps({"format": FORMAT, "patients": {"scans": ["p4_ED"]}}),
    ],
)  # fmt: skip
def test_without_a_file_that_can_be_read_the_order_is_the_one_of_before(tmp_path, text):
    path = tmp_path / "order.json"
    if text is not None:
        path.write_text(text)
    assert order(path) == BEFORE
