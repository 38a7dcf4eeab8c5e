"""A model whose Task has a first look carries the small model for it, and is refused without."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import models

from mona_infer.engines import base
from mona_infer.engines.base import Kind, choose_both
from mona_infer.errors import InputError
from mona_infer.models.file import opened, packed, seal
from mona_infer.task import LOOK

TASK = replace(models.TASK, long_side=48, window=(32, 32), first_look=True)
SMALL = models.model_bytes(models.LOOKING)


def sealed(task=TASK, **facts):
    return seal(models.graph(task).SerializeToString(), {"task": json.loads(task.to_json()), **facts})


def test_the_small_model_comes_with_it_and_is_not_among_the_facts():
    model = opened("model.onnx", models.model_bytes(TASK, metrics={"dsc": 0.9}))
    assert model.first_look is not None
    assert model.first_look.content == SMALL
    assert model.first_look.task == models.LOOKING
    assert set(model.facts) == {"metrics", "precision"}
    assert opened("model.onnx", models.model_bytes()).first_look is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (sealed(), "lacks the small model"),
        (sealed(first_look=None), "lacks the small model"),
        (sealed(first_look={"content": packed(SMALL)}), "lacks the small model"),
        (sealed(first_look="not base64!"), "not base64"),
        (sealed(first_look=packed(SMALL)[:-4]), "first-look is not a mona model, or is truncated"),
        (sealed(first_look=packed(SMALL[:-1] + b"x")), "first-look is damaged"),
        (sealed(first_look=packed(models.model_bytes(TASK))), "2 classes at 64x64, found 4 classes at 32x32"),
        (sealed(first_look=packed(models.model_bytes())), "2 classes at 64x64"),
        (
            sealed(first_look=packed(models.model_bytes(replace(models.LOOKING, size=(LOOK, 32))))),
            "found 2 classes at 64x32",
        ),
        (sealed(models.TASK, first_look=packed(SMALL)), "does not use"),
        (sealed(first_look=packed(sealed(models.LOOKING, first_look=packed(SMALL)))), "does not use"),
    ],
)
def test_anything_else_is_refused_in_words(content, words):
    with pytest.raises(InputError, match=words) as caught:
        opened("model.onnx", content)
    assert "\n" not in str(caught.value)


def test_both_run_on_engines_of_the_same_kind():
    model = opened("model.onnx", models.model_bytes(TASK))
    for name in ("auto", "cpu"):
        engine, first_look = choose_both(name, model, threads=1)
        assert engine.run(np.zeros((1, 32, 32), np.float32)).shape == (1, 4, 32, 32)
        assert first_look is not None
        assert first_look.run(np.zeros((3, LOOK, LOOK), np.float32)).shape == (3, 2, LOOK, LOOK)
    assert choose_both("cpu", opened("model.onnx", models.model_bytes()), threads=1)[1] is None


def test_engines_that_need_a_plan_leave_the_first_look_to_the_cpu(monkeypatch):
    """And `auto` follows whichever it took."""
    made = []

    def kind(name, **options):
        return Kind(name, lambda model, threads: made.append((name, model.task.name)), name, name, **options)

    registry = {"trt": kind("trt", rank=3, plans=True), "gpu": kind("gpu"), "cpu": kind("cpu", rank=1)}
    monkeypatch.setattr(base, "engines", lambda: registry)
    model = opened("model.onnx", models.model_bytes(TASK))
    for name, first_look in (("trt", "cpu"), ("gpu", "gpu"), ("auto", "cpu"), ("cpu", "cpu")):
        made.clear()
        choose_both(name, model)
        assert made == [("trt" if name == "auto" else name, "bands"), (first_look, "first look")]


def test_those_are_the_tensorrt_engines():
    assert {name for name, kind in base.engines().items() if kind.plans} == {"tensorrt", "ort-tensorrt"}
