"""Post-processing by measurement: it is part of the Task only where it raises the DSC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mona_infer.task import Task

RULES = ("keep_largest", "fill_holes")
GAIN = 1e-4  # DSC


def choose_post_processing(task: Task, measure: Callable[[Task], dict[str, Any]]) -> tuple[Task, dict[str, Any]]:
    """The Task with each rule for the classes that it helps, and what was measured.

    `measure` returns the summary of validation with a Task.  A rule changes a class and the background only, so all
    classes are tried at once and chosen one by one.
    """
    task = replace(task, keep_largest=(), fill_holes=())
    every = tuple(c.id for c in task.classes[1:])
    now = measure(task)
    report: dict[str, Any] = {"without": now["dsc"]}
    for rule in RULES:
        tried = measure(_with(task, rule, every))
        gains = {c.id: _dsc(tried, c.name) - _dsc(now, c.name) for c in task.classes[1:]}
        chosen = tuple(label for label, gain in gains.items() if gain > GAIN)
        report[rule] = {c.name: round(gains[c.id], 5) for c in task.classes[1:]}
        if chosen:
            task = _with(task, rule, chosen)
            now = tried if chosen == every else measure(task)
    return task, report


def _with(task: Task, rule: str, classes: tuple[int, ...]) -> Task:
    changes: dict[str, Any] = {rule: classes}
    return replace(task, **changes)


def _dsc(summary: dict[str, Any], name: str) -> float:
    return float(summary["classes"][name]["dsc"])
