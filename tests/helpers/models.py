"""A model small enough to know by heart: 1x1 weights that turn brightness into classes, sealed like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from mona_infer.models.file import packed, seal
from mona_infer.task import CARDIAC, LOOK, LabelClass, Task

SIDE = 32
TASK = replace(CARDIAC, name="bands", size=(SIDE, SIDE))
ORGAN = (LabelClass(0, "background", (0, 0, 0)), LabelClass(1, "organ", (255, 255, 255)))
LOOKING = Task("first look", ORGAN, size=(LOOK, LOOK))  # its bands: what is brighter than half is the organ


def bands(classes: int = 4) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights and biases whose largest logit is that of the band 0..1/classes, ... that a brightness lies in."""
    k = np.arange(classes, dtype=np.float32)
    return 40 * k, -40 * k * k / (2 * classes) - 40 * k / (2 * classes)


def graph(task: Task = TASK, bias: NDArray[np.float32] | None = None) -> onnx.ModelProto:
    weight, usual = bands(len(task.classes))
    parts = [
        numpy_helper.from_array(weight.reshape(-1, 1, 1, 1), "weight"),
        numpy_helper.from_array(usual if bias is None else bias, "bias"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", channels, *task.input_size])
        for name, channels in (("slices", 1), ("logits", len(task.classes)))
    ]
    node = helper.make_node("Conv", ["slices", "weight", "bias"], ["logits"], name="bands")
    body = helper.make_graph([node], "bands", ends[:1], ends[1:], parts)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def model_bytes(task: Task = TASK, **facts: Any) -> bytes:
    import json

    if task.first_look:
        facts = {"first_look": packed(model_bytes(LOOKING))} | facts
    return seal(graph(task).SerializeToString(), {"task": json.loads(task.to_json()), "precision": "fp32", **facts})


def write(path: Path, task: Task = TASK, **facts: Any) -> Path:
    path.write_bytes(model_bytes(task, **facts))
    return path


def scan(seed: int = 0, shape: tuple[int, int, int] = (40, 36, 5)) -> NDArray[np.int16]:
    """Smooth brightness 0..1000 with both ends in it, so that min-max leaves it as it is."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((5, 5, shape[2]))
    rows, columns = (np.linspace(0, 3.99, n) for n in shape[:2])
    i, j = rows.astype(int), columns.astype(int)
    u, v = (rows - i)[:, None, None], (columns - j)[None, :, None]
    a, b, c, d = (coarse[np.ix_(x, y)] for x, y in ((i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)))
    smooth = (1 - u) * ((1 - v) * a + v * b) + u * ((1 - v) * c + v * d)
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return np.asarray(np.rint(1000 * smooth), np.int16)
