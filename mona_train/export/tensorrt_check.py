"""Whether TensorRT 11 can build a graph: if it cannot build one of ours, that is a bug, and export finds it.

From the operator table of TensorRT's ONNX parser (opsets 9 to 25) and "Explicit Quantization" of its documentation.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mona_infer.errors import CheckFailed

OPERATORS = {"Conv", "LeakyRelu", "MaxPool", "Resize", "Concat", "Cast", "QuantizeLinear", "DequantizeLinear"}
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
TYPES = FLOATS | {TensorProto.INT8}
COORDINATES = {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"}  # of a linear Resize
OPSETS = range(9, 26)


def check_for_tensorrt(model: onnx.ModelProto) -> None:
    """Check for operators, types, ranks and quantisation that TensorRT does not support."""
    graph = model.graph
    for opset in model.opset_import:
        if opset.domain not in ("", "ai.onnx") or opset.version not in OPSETS:
            found = f"{opset.domain or 'ai.onnx'} {opset.version}"
            _refuse(f"expected operators of ai.onnx {OPSETS[0]} to {OPSETS[-1]}, found {found}")
    unknown = sorted({node.op_type for node in graph.node} - OPERATORS)
    if unknown:
        _refuse(f"operators that were not checked against TensorRT: {', '.join(unknown)}")
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kinds = {name: tensor.data_type for name, tensor in constants.items()}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        kinds[value.name] = kind.elem_type
        if kind.HasField("shape") and not all(size.HasField("dim_value") for size in kind.shape.dim[1:]):
            _refuse(f"the sizes of {value.name} are not fixed; only the number of slices may vary")
    known = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
    for node in graph.node:
        for name in node.output:
            if name not in known:
                _refuse(f"the rank of {name} is not fixed")
        odd = [name for name in (*node.input, *node.output) if name and kinds.get(name) not in TYPES]
        if odd:
            _refuse(f"{odd[0]} has a type that TensorRT does not support")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            _check_pair(node, constants, kinds)
        elif node.op_type == "Resize":
            _check_resize(node)
        elif node.op_type != "Cast" and len({kinds[name] for name in (*node.input, *node.output) if name}) > 1:
            _refuse(
                f"{node.name} is a {node.op_type} of mixed types, and a strongly typed network has no implicit casts"
            )


def _check_pair(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], kinds: dict[str, int]) -> None:
    """Symmetric int8 with constant scales: one for an activation, one for each output channel of weights."""
    given, scale, zero = node.input
    quantised = node.output[0] if node.op_type == "QuantizeLinear" else given
    if kinds[quantised] != TensorProto.INT8:
        _refuse(f"{node.name}: {quantised} is not int8")
    if scale not in constants or zero not in constants:
        _refuse(f"{node.name}: the scale or zero point is not a constant")
    scales = numpy_helper.to_array(constants[scale])
    if numpy_helper.to_array(constants[zero]).any() or not (np.isfinite(scales) & (scales > 0)).all():
        _refuse(f"{node.name}: expected zero points of 0 and positive scales")
    axis = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "axis"), 1)
    if scales.ndim and (axis != 0 or given not in constants):
        _refuse(f"{node.name}: only weights can have a scale per channel, along axis 0")


def _check_resize(node: onnx.NodeProto) -> None:
    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    mode, coordinates = (found.get(key, b"?").decode() for key in ("mode", "coordinate_transformation_mode"))
    if mode != "linear" or coordinates not in COORDINATES:
        _refuse(f"{node.name} is an unsupported Resize ({mode}, {coordinates})")


def _refuse(what: str) -> None:
    raise CheckFailed(f"TensorRT could not build this graph: {what}")
