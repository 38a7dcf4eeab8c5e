"""The first look inside a model file: a whole small model, which computes in fp32 whatever the other computes in.

Beside an fp16 network of 3.6 MB its 0.6 MB (as base64) would be noticed, so there its weights are stored in half
precision: layer after layer, the largest first, wherever the answer on the parity set stays the same in every pixel.
"""

from __future__ import annotations

import json
import math

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from mona_infer.engines.onnx import OnnxEngine
from mona_infer.models.file import opened, seal
from mona_infer.task import GREEN, LOOK, LabelClass, Task
from mona_train.export.certify import look_changes
from mona_train.export.onnx import cleaned, copied, replace, serialise, to_onnx
from mona_train.export.parity import Parity

FEWEST = 64  # weights of a layer that are worth a Cast
ATTEMPTS = 8  # at rounding a layer: a pixel on the edge between two answers stays on its side in some of them


def first_look_file(network: nn.Module, parity: Parity, *, small: bool) -> bytes:
    """A whole model file."""
    classes = LabelClass(0, "background", (0, 0, 0)), LabelClass(1, "organ", GREEN)
    task = Task(name="first look", classes=classes, size=(LOOK, LOOK))
    facts = {"precision": "fp32", "task": json.loads(task.to_json())}
    graph = to_onnx(network, (LOOK, LOOK))
    content = seal(serialise(graph), facts)
    for tensor in sorted(graph.graph.initializer, key=lambda t: -math.prod(t.dims)) if small else ():
        if tensor.data_type != TensorProto.FLOAT or math.prod(tensor.dims) < FEWEST:
            continue
        for attempt in range(ATTEMPTS):
            tried = half_stored(graph, tensor.name, attempt)
            file = seal(serialise(tried), facts)
            if look_changes(OnnxEngine(opened("first look", file)), parity) == 0:
                graph, content = tried, file
                break
    return content


def half_stored(model: onnx.ModelProto, name: str, attempt: int = 0) -> onnx.ModelProto:
    """The same graph with these weights stored in fp16 and cast to fp32 when the model is loaded."""
    stored = copied(model)
    (tensor,) = (t for t in stored.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(tensor), attempt), f"{name}_half"))
    cast = helper.make_node("Cast", [f"{name}_half"], [name], f"{name}_cast", to=TensorProto.FLOAT)
    replace(stored.graph.node, [cast, *stored.graph.node])
    return cleaned(stored)


def rounded(values: NDArray[np.float32], attempt: int) -> NDArray[np.float16]:
    """To the nearest fp16; in later attempts up or down by chance (as near, so likely), the same in every export."""
    nearest = values.astype(np.float16)
    if attempt == 0:
        return nearest
    gap = values - nearest.astype(np.float32)
    other = np.nextafter(nearest, np.where(gap > 0, np.float16(np.inf), np.float16(-np.inf)), dtype=np.float16)
    step = np.abs(other.astype(np.float32) - nearest.astype(np.float32))
    drawn = np.random.default_rng(attempt).random(values.shape)
    return np.where((gap != 0) & (drawn < np.abs(gap) / step), other, nearest)
