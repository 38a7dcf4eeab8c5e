"""Post-processing by measurement: each rule for the classes that gain by it, and for no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mona_infer.task import CARDIAC, Task
from mona_train.engine.post_processing import GAIN, choose_post_processing

RV, MYO, LV = 1, 2, 3
NAMES = {RV: "RV", MYO: "Myo", LV: "LV"}
Gains = dict[tuple[str, int], float]


def measuring(gains: Gains, together: float = 0.0) -> tuple[Callable[[Task], dict[str, Any]], list[Task]]:
    """DSC 0.8 and what each rule gains for a class; `together` is more for a class with both.  And what was asked."""
    asked: list[Task] = []

    def measure(task: Task) -> dict[str, Any]:
        asked.append(task)
        classes = {}
        for label, name in NAMES.items():
            on = [rule for rule in ("keep_largest", "fill_holes") if label in getattr(task, rule)]
            dsc = 0.8 + sum(gains.get((rule, label), 0.0) for rule in on) + together * (len(on) == 2)
            classes[name] = {"dsc": dsc}
        return {"dsc": sum(entry["dsc"] for entry in classes.values()) / 3, "classes": classes}

    return measure, asked


def chosen(gains: Gains, together: float = 0.0, task: Task = CARDIAC) -> tuple[Task, dict[str, Any], list[Task]]:
    measure, asked = measuring(gains, together)
    return *choose_post_processing(task, measure), asked


def test_a_rule_is_for_the_classes_that_gain() -> None:
    gains = {("keep_largest", RV): 0.02, ("keep_largest", MYO): -0.01, ("fill_holes", LV): 0.005}
    task, report, asked = chosen(gains)
    assert task == replace(CARDIAC, keep_largest=(RV,), fill_holes=(LV,))
    assert report == {
        "without": pytest.approx(0.8),
        "keep_largest": {"RV": 0.02, "Myo": -0.01, "LV": 0.0},
        "fill_holes": {"RV": 0.0, "Myo": 0.0, "LV": 0.005},
    }
    # without; all largest; those chosen; with all holes filled, of the largest pieces
    assert [(t.keep_largest, t.fill_holes) for t in asked[:4]] == [
        ((), ()),
        ((RV, MYO, LV), ()),
        ((RV,), ()),
        ((RV,), (RV, MYO, LV)),
    ]


@pytest.mark.parametrize(("gain", "worth"), [(-0.01, False), (0.0, False), (GAIN, False), (1.5 * GAIN, True)])
def test_a_gain_must_be_worth_it(gain: float, worth: bool) -> None:
    task, _, _ = chosen({("keep_largest", LV): gain, ("fill_holes", LV): gain})
    assert task == replace(CARDIAC, keep_largest=(LV,) * worth, fill_holes=(LV,) * worth)


def test_holes_are_judged_after_the_largest_piece_was_kept() -> None:
    """Filling holes gains nothing by itself, and something where only the largest piece is left; or the other way."""
    task, report, _ = chosen({("keep_largest", RV): 0.01}, together=0.01)
    assert task.fill_holes == (RV,) and report["fill_holes"]["RV"] == 0.01
    task, report, _ = chosen({("keep_largest", RV): 0.01, ("fill_holes", RV): 0.01}, together=-0.02)
    assert task.fill_holes == () and report["fill_holes"]["RV"] == -0.01


def test_it_starts_from_nothing_and_all_classes_cost_no_further_measurement() -> None:
    before = replace(CARDIAC, keep_largest=(MYO,), fill_holes=(MYO,))
    task, _, asked = chosen({("keep_largest", label): 0.1 for label in NAMES}, task=before)
    assert task == replace(CARDIAC, keep_largest=(RV, MYO, LV))
    assert len(asked) == 3
