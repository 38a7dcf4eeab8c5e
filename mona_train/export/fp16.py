"""A graph in fp16, and a simulation of half-precision hardware on the CPU."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mona_train.export.onnx import cleaned, copied, head, quiet, replace


def to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights and operators in half precision; slices and logits stay fp32, so that all engines are used alike.

    The last convolution stays fp32 too, as in int8: half precision has steps of 0.008 at a logit of 10, and rounding
    would decide between classes there.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quiet():
        half = convert_float_to_float16(
            copied(model), keep_io_types=True, op_block_list=[], node_block_list=[head(model).name]
        )
    return cleaned(half)


def rounded(half: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph in fp32, every result rounded to fp16 where the graph says fp16.

    ONNX Runtime has no fp16 convolutions for x86: it computes such a graph in fp32 from end to end, and an activation
    above 65,504, which makes a GPU's mask black, goes unnoticed.  A certificate is made with this graph instead.
    """
    model = copied(half)
    graph = model.graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    nodes = []
    for node in graph.node:
        name = node.output[0]
        if node.op_type == "Cast":  # everything is fp32 now
            node = helper.make_node("Identity", node.input, node.output, name=node.name)
        nodes.append(node)
        if kinds[name] == TensorProto.FLOAT16:
            node.output[0] = f"{name}_exact"
            nodes.append(helper.make_node("Cast", [f"{name}_exact"], [f"{name}_half"], to=TensorProto.FLOAT16))
            nodes.append(helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))
    replace(graph.node, nodes)
    return cleaned(model)
