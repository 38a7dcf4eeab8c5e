"""A graph in int8: Q/DQ pairs around convolutions, with scales from real slices, as TensorRT takes them.

Activations have one scale each, weights one for every output channel; all are symmetric with zero point 0, which is
what TensorRT supports, and biases stay float, because it dequantises int8 only.

Three things cost accuracy on a U-Net trained on ACDC, and are avoided:
- One scale for all channels of an activation wastes steps on the quiet ones.  Leaky ReLU, max pooling, linear resizing
  and concatenation let a positive factor of a channel pass, so it can move from one convolution to those that read it:
  the network stays the same, and all channels use the whole range (cross-layer equalisation, Nagel et al. 2019).
- A range up to the single largest value.  It ends where the squared error of what is rounded and what is cut off is
  least.  (Percentiles: as good at 99.99, ruinous at 99.9.)
- The slice itself in 127 steps.  The convolution that reads it stays float, like the one that makes the logits, where
  ties between classes are decided; together they are 2 % of the multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from mona_infer.engines.onnx import onnx_runtime
from mona_train.export.onnx import cleaned, copied, head, replace, serialise

STEPS = 127
BATCH = 4
ENDS = np.linspace(0.3, 1.0, 29)  # where a range may end, as shares of the largest value
SAMPLED = 20_000  # values of an activation that are looked at in every batch
PASSES_FACTORS = ("LeakyRelu", "MaxPool", "Resize")
# A channel that is near zero on these slices may not be on others: it is scaled up by at most this factor.
LOUDEST = 100
Array = NDArray[np.float32]


def to_int8(model: onnx.ModelProto, slices: Array) -> onnx.ModelProto:
    """`slices` (n, rows, columns) are what the scales are taken from."""
    equal = equalised(model, slices)
    graph, last = equal.graph, head(equal).name
    chosen = [n for n in _convolutions(equal) if n.name != last and n.input[0] != "slices"]
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    nodes, constants = list(graph.node), []
    for name, scale in _scales(equal, sorted({n.input[0] for n in chosen}), slices).items():
        pair = _constants(name, np.float32(scale), np.int8(0))
        constants += pair
        between, ends = f"{name}_int8", [tensor.name for tensor in pair]
        nodes.append(helper.make_node("QuantizeLinear", [name, *ends], [between], name=f"{name}_Q"))
        nodes.append(helper.make_node("DequantizeLinear", [between, *ends], [f"{name}_DQ"], name=f"{name}_DQ"))
    for node in chosen:
        name = node.input[1]
        weight = weights[name]  # outputs inputs rows columns
        most = np.abs(weight).max((1, 2, 3))
        scales = np.where(most > 0, most, 1).astype(np.float32) / np.float32(STEPS)
        steps = np.rint(weight / scales[:, None, None, None]).astype(np.int8)
        pair = _constants(name, scales, np.zeros(len(scales), np.int8))
        constants += [numpy_helper.from_array(steps, f"{name}_int8"), *pair]
        given = [f"{name}_int8", *(tensor.name for tensor in pair)]
        nodes.append(helper.make_node("DequantizeLinear", given, [f"{name}_DQ"], name=f"{name}_DQ", axis=0))
        node.input[0], node.input[1] = f"{node.input[0]}_DQ", f"{name}_DQ"
    graph.initializer.extend(constants)
    replace(graph.node, nodes)
    return cleaned(equal)


def equalised(model: onnx.ModelProto, slices: Array) -> onnx.ModelProto:
    """The same network with the loudest values of all channels of an activation alike."""
    equal = copied(model)
    weights = {t.name: numpy_helper.to_array(t).copy() for t in equal.graph.initializer}
    producers = [n for n in _convolutions(equal) if n.name != head(equal).name]
    heard = {n.name: _activated(equal, n.output[0]) for n in producers}
    loudest = _loudest(equal, sorted(heard.values()), slices)
    for node in producers:
        most = loudest[heard[node.name]]
        factor = np.maximum(most, max(float(most.max()), 1e-6) / LOUDEST)
        factor /= np.exp(np.log(factor).mean())  # the activation as a whole stays as loud as it was
        weights[node.input[1]] /= factor[:, None, None, None]
        weights[node.input[2]] /= factor
        for reader, first in _readers(equal, node.output[0]):
            weights[reader.input[1]][:, first : first + len(factor)] *= factor[:, None, None]
    for tensor in equal.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return equal


def _readers(model: onnx.ModelProto, name: str, first: int = 0) -> Iterator[tuple[onnx.NodeProto, int]]:
    """The convolutions that a value reaches, and which of their input channels is its first."""
    for node in model.graph.node:
        if name not in node.input:
            continue
        if node.op_type == "Conv":
            yield node, first
        elif node.op_type in PASSES_FACTORS:
            yield from _readers(model, node.output[0], first)
        elif node.op_type == "Concat":
            before = list(node.input)[: list(node.input).index(name)]
            yield from _readers(model, node.output[0], first + sum(_channels(model, n) for n in before))
        else:
            raise ValueError(f"a channel's factor does not pass through {node.op_type}")


def _activated(model: onnx.ModelProto, name: str) -> str:
    """A convolution's result as the next layers read it: after its activation, if it has one."""
    after = [node for node in model.graph.node if name in node.input]
    return str(after[0].output[0] if len(after) == 1 and after[0].op_type == "LeakyRelu" else name)


def _loudest(model: onnx.ModelProto, names: list[str], slices: Array) -> dict[str, Array]:
    """The largest absolute value of every channel of these values, over all slices."""
    most = {name: np.zeros(_channels(model, name), np.float32) for name in names}
    for answers in _watched(model, names, slices):
        for name, answer in answers.items():
            most[name] = np.maximum(most[name], answer.max((0, 2, 3)))
    return most


def _scales(model: onnx.ModelProto, names: list[str], slices: Array) -> dict[str, float]:
    """The step of each of these values that gives the least squared error, on a sample of them."""
    rng = np.random.default_rng(0)
    largest, samples = dict.fromkeys(names, 0.0), {name: [] for name in names}  # type: ignore[var-annotated]
    for answers in _watched(model, names, slices):
        for name, answer in answers.items():
            largest[name] = max(largest[name], float(answer.max()))
            samples[name].append(answer.ravel()[rng.integers(0, answer.size, SAMPLED)])
    found = {}
    for name in names:
        values, steps = np.concatenate(samples[name]), (largest[name] or 1.0) * ENDS / STEPS
        errors = [np.square(np.minimum(np.rint(values / step), STEPS) * step - values).mean() for step in steps]
        found[name] = float(steps[int(np.argmin(errors))])
    return found


def _watched(model: onnx.ModelProto, names: list[str], slices: Array) -> Iterator[dict[str, Array]]:
    """The absolute values of activations, batch by batch."""
    watched = copied(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = onnx_runtime().InferenceSession(serialise(watched), providers=["CPUExecutionProvider"])
    for start in range(0, len(slices), BATCH):
        answers = session.run(names, {"slices": slices[start : start + BATCH, None]})
        yield {name: np.abs(answer) for name, answer in zip(names, answers, strict=True)}


def _channels(model: onnx.ModelProto, name: str) -> int:
    value = next(value for value in model.graph.value_info if value.name == name)
    return int(value.type.tensor_type.shape.dim[1].dim_value)


def _convolutions(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "Conv"]


def _constants(name: str, scale: Array | np.float32, zero: NDArray[np.int8] | np.int8) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(value), f"{name}_{kind}") for kind, value in
            (("scale", scale), ("zero", zero))]  # fmt: skip
