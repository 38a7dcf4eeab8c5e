"""A Task survives JSON unchanged, and says what is wrong with one that is not a Task."""

import json
from dataclasses import replace

import pytest

from mona_infer import InputError, Task
from mona_infer.task import CARDIAC, Intensity, centred


def test_json_and_back():
    task = replace(
        CARDIAC,
        intensity=Intensity("percentile", 0.5, 99.5),
        size=(128, 96),
        window=(96, 80),
        image_order=1,
        seen={"spacing_mm": (1.2, 1.9)},
    )
    assert Task.from_json(task.to_json()) == task
    assert task.input_size == (96, 80)


def test_without_a_window_the_text_is_as_before_there_were_windows():
    """Prepared caches are compared by it, so a new key would have every one of them made again."""
    assert "window" not in json.loads(CARDIAC.to_json())
    assert Task.from_json(CARDIAC.to_json()) == CARDIAC
    assert Task.from_json(json.dumps(json.loads(CARDIAC.to_json()) | {"window": None})) == CARDIAC
    assert CARDIAC.window is None
    assert CARDIAC.input_size == CARDIAC.size


@pytest.mark.parametrize(
    ("size", "window", "rows", "columns"),
    [
        ((128, 128), (96, 96), (16, 112), (16, 112)),
        ((9, 8), (4, 5), (2, 6), (1, 6)),  # odd differences: the place left over is behind the window
        ((9, 8), (9, 8), (0, 9), (0, 8)),
        ((9, 8), (1, 1), (4, 5), (3, 4)),
        ((5, 40), (4, 16), (0, 4), (12, 28)),
    ],
)
def test_where_a_window_lies(size, window, rows, columns):
    assert centred(size, window) == (slice(*rows), slice(*columns))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sise": [256, 256]}, "sise"),
        ({"size": [256]}, "not a valid task"),
        ({"size": [0, 256]}, "size"),
        ({"window": [257, 96]}, r"1x1 and 256x256, found \(257, 96\)"),
        ({"window": [96, 257]}, "window"),
        ({"window": [96, 0]}, "window"),
        ({"window": [-1, 96]}, "window"),
        ({"window": [96]}, "not a valid task"),
        ({"window": 96}, "not a valid task"),
        ({"classes": []}, "class ids"),
        ({"classes": [{"id": 0}]}, "not a valid task"),
        ({"slices": "diagonal"}, "diagonal"),
        ({"image_order": 3}, "orders"),
        ({"intensity": {"rule": "zscore"}}, "zscore"),
        ({"intensity": {"rule": "window", "low": 3, "high": 1}}, "low < high"),
        ({"intensity": {"rule": "percentile", "low": -3, "high": 1}}, "between 0 and 100"),
    ],
)
def test_what_is_wrong_is_named(change, word):
    with pytest.raises(InputError, match=word):
        Task.from_json(json.dumps(json.loads(CARDIAC.to_json()) | change))


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "null", '{"name": 1}'])
def test_other_json_is_refused(text):
    with pytest.raises(InputError, match="task"):
        Task.from_json(text)
