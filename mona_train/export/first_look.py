"""The first look inside a model file: a whole small model, which computes in fp32 whatever the other computes in.

Beside an fp16 network of 3.6 MB its 0.6 MB (as base64) would be noticed, so there its weights are stored in half
precision: layer after layer, the largest first, wherever the answer on the parity set stays the same in every pixel.
"""

from __future__ import annotations

import json
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from mona_infer.engines.onnx import OnnxEngine
from mona_infer.models.file import opened, seal
from mona_infer.task import GREEN, LOOK, LabelClass, Task
from mona_train.export.certify import look_changes
from mona_train.export.onnx import cleaned, copied, replace, serialise, to_onnx
from mona_train.export.parity import Parity

FEWEST = 64  # weights of a layer that are worth a Cast


def first_look_file(network: nn.Module, parity: Parity, *, small: bool) -> bytes:
    """A whole model file."""
    classes = LabelClass(0, "background", (0, 0, 0)), LabelClass(1, "organ", GREEN)
    task = Task(name="first look", classes=classes, size=(LOOK, LOOK))
    facts = {"precision": "fp32", "task": json.loads(task.to_json())}
    graph = to_onnx(network, (LOOK, LOOK))
    content = seal(serialise(graph), facts)
    rounded: set[str] = set()
    for tensor in sorted(graph.graph.initializer, key=lambda t: -math.prod(t.dims)) if small else ():
        if tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) >= FEWEST:
            tried = seal(serialise(half_stored(graph, {*rounded, tensor.name})), facts)
            if look_changes(OnnxEngine(opened("first look", tried)), parity) == 0:
                content, rounded = tried, {*rounded, tensor.name}
    return content


def half_stored(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """The same graph with these weights stored in fp16 and cast to fp32 when the model is loaded."""
    stored = copied(model)
    casts = []
    for tensor in stored.graph.initializer:
        if tensor.name in names:
            values, name = numpy_helper.to_array(tensor), tensor.name
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
            casts.append(helper.make_node("Cast", [f"{name}_half"], [name], f"{name}_cast", to=TensorProto.FLOAT))
    replace(stored.graph.node, [*casts, *stored.graph.node])
    return cleaned(stored)
