"""A Task survives JSON unchanged, and says what is wrong with one that is not a Task."""

import json
from dataclasses import replace

import pytest

from mona_infer import InputError, Task
from mona_infer.task import CARDIAC, Intensity


def test_json_and_back():
    task = replace(
        CARDIAC,
        intensity=Intensity("percentile", 0.5, 99.5),
        size=(128, 96),
        image_order=1,
        seen={"spacing_mm": (1.2, 1.9)},
    )
    assert Task.from_json(task.to_json()) == task


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sise": [256, 256]}, "sise"),
        ({"size": [256]}, "not a task"),
        ({"size": [0, 256]}, "size"),
        ({"classes": []}, "class ids"),
        ({"classes": [{"id": 0}]}, "not a task"),
        ({"slices": "diagonal"}, "diagonal"),
        ({"image_order": 3}, "orders"),
        ({"intensity": {"rule": "zscore"}}, "zscore"),
        ({"intensity": {"rule": "window", "low": 3, "high": 1}}, "low < high"),
        ({"intensity": {"rule": "percentile", "low": -3, "high": 1}}, "0..100"),
    ],
)
def test_what_is_wrong_is_named(change, word):
    with pytest.raises(InputError, match=word):
        Task.from_json(json.dumps(json.loads(CARDIAC.to_json()) | change))


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "null", '{"name": 1}'])
def test_other_json_is_refused(text):
    with pytest.raises(InputError, match="task"):
        Task.from_json(text)
