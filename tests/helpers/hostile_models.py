"""Model files that were damaged, or made to harm: `make(n)` gives the bytes of number n, always the same."""

import json

import numpy as np
import onnx
from onnx import numpy_helper

from helpers import models
from mona_infer.models.file import FACTS, METADATA, SEAL_BYTES, seal
from mona_infer.models.protobuf import entry

CONTENT = models.model_bytes()


def hostile():
    """Name and content of files whose seal is right, and nothing else."""
    task = json.loads(models.TASK.to_json())
    graph = models.graph()
    plain = graph.SerializeToString()
    yield "noise", seal(np.random.default_rng(0).bytes(500), {"task": task})
    yield "no graph", seal(b"", {"task": task})
    yield "two graphs", seal(plain + plain, {"task": task})
    yield "two descriptions", seal(plain + entry(FACTS, b"{}", METADATA), {"task": task})
    yield "no task", seal(plain, {})
    yield "a task that is none", seal(plain, {"task": {"name": "x", "classes": []}})
    yield "a task of nonsense", seal(plain, {"task": {**task, "size": "big"}})
    yield "a newer format", seal(plain, {"task": task, "format": 99})
    yield "a length past the end", seal(plain + b"\x3a\xff\xff\xff\xff\x0f", {"task": task})
    outside = models.graph()
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    yield "weights elsewhere", seal(outside.SerializeToString(), {"task": task})
    strange = models.graph()
    strange.opset_import.add(domain="evil", version=1)
    yield "strange operators", seal(strange.SerializeToString(), {"task": task})
    function = models.graph()
    function.functions.add(name="f", domain="evil")
    yield "functions", seal(function.SerializeToString(), {"task": task})
    branch = models.graph()
    branch.graph.node[0].attribute.add(name="body", type=onnx.AttributeProto.GRAPH)
    branch.graph.node[0].attribute[-1].g.name = "inner"
    yield "branches", seal(branch.SerializeToString(), {"task": task})


def make(n):
    """Kinds take turns, so that any run of consecutive numbers holds every kind."""
    return KINDS[n % len(KINDS)](np.random.default_rng(n))


def flipped(rng):
    data = bytearray(CONTENT)
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(data)


def cut(rng):
    return CONTENT[: rng.integers(len(CONTENT))]


def grown(rng):
    return CONTENT + (rng.bytes(rng.integers(1, 200)) if rng.random() < 0.5 else CONTENT[-SEAL_BYTES:])


def no_model(rng):
    return [b"", b"patient,side\n" * 50, rng.bytes(5000), b"\0" * 5000][rng.integers(4)]


def sealed_all_the_same(rng):
    made = [content for _, content in hostile()]
    return made[rng.integers(len(made))]


def not_finite(rng):
    """Weights that make the network answer with what is no number."""
    graph = models.graph(bias=np.array([0, 0, 0, rng.choice([np.nan, np.inf])], np.float32))
    return seal(graph.SerializeToString(), {"task": json.loads(models.TASK.to_json())})


def another_shape(rng):
    """A graph that does not do what its Task says."""
    task = json.loads(models.TASK.to_json())
    if rng.random() < 0.5:
        task["size"] = [int(n) for n in rng.integers(1, 16385, 2)]
    else:
        task["classes"] = task["classes"][: rng.integers(2, 4)]
    return seal(models.graph().SerializeToString(), {"task": task})


def broken_graph(rng):
    graph = models.graph()
    change = rng.integers(4)
    if change == 0:
        graph.graph.node[0].op_type = "NoSuchOperator"
    elif change == 1:
        graph.graph.initializer[0].dims[0] = 1 << 40  # promises more weights than there are
    elif change == 2:
        graph.graph.node[0].input[0] = "nowhere"
    else:
        graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 7, 3, 3), np.float32), "weight"))
    return seal(graph.SerializeToString(), {"task": json.loads(models.TASK.to_json())})


KINDS = [flipped, cut, grown, no_model, sealed_all_the_same, not_finite, another_shape, broken_graph]
