"""Exported graphs spoilt on purpose: ones that compute something else, and ones that TensorRT could not take."""

import numpy as np
import onnx

from mona_train.export import onnx as graph


def weights_of(model):
    return {t.name: onnx.numpy_helper.to_array(t).copy() for t in model.graph.initializer}


def with_weights(model, weights):
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    return model


def convolutions(model):
    return [node for node in model.graph.node if node.op_type == "Conv"]


def altered(model):
    """One weight of the first convolution, after export."""
    weights = weights_of(model)
    weights[convolutions(model)[0].input[1]][0, 0, 1, 1] += 3
    return with_weights(model, weights)


def half_pixels(model):
    """Upsampling with align_corners=False: the commonest slip of a re-implementation."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "coordinate_transformation_mode":
                attribute.s = b"half_pixel"
    return model


def loud(model):
    """The same network in fp32, its first activation 100,000 times as loud: more than half precision holds."""
    weights = weights_of(model)
    first, second = convolutions(model)[:2]
    for name in first.input[1:]:
        weights[name] *= np.float32(1e5)
    weights[second.input[1]] /= np.float32(1e5)
    return with_weights(model, weights)


BROKEN = [("fp32", altered), ("int8", altered), ("fp32", half_pixels), ("fp16", loud)]


def operator(model):
    model.graph.node[0].op_type = "NonZero"


def rank(model):
    del model.graph.value_info[:]


def size(model):
    model.graph.value_info[0].type.tensor_type.shape.dim[2].dim_param = "rows"


def type_(model):
    name = convolutions(model)[0].input[1]
    weights = weights_of(model)
    weights[name] = weights[name].astype(np.float16)
    with_weights(model, weights)


def opset(model):
    model.opset_import[0].version = 99


def zero_point(model):
    next(t for t in model.graph.initializer if t.name.endswith("_zero")).raw_data = b"\x05"


def scale(model):
    weights = weights_of(model)
    name = next(n for n in weights if n.endswith("_scale"))
    weights[name] = weights[name] * 0
    with_weights(model, weights)


def axis(model):
    node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.attribute)
    node.attribute[0].i = 1


def int32_bias(model):
    """What ONNX Runtime's quantiser writes by default."""
    node = convolutions(model)[2]
    bias = weights_of(model)[node.input[2]]
    parts = {
        "b": np.zeros(len(bias), np.int32),
        "s": np.ones(len(bias), np.float32),
        "z": np.zeros(len(bias), np.int32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in parts.items())
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", [*parts], ["bias"], name="bias", axis=0))
    node.input[2] = "bias"
    model.CopyFrom(graph.cleaned(model))


def cubic(model):
    node = next(n for n in model.graph.node if n.op_type == "Resize")
    next(a for a in node.attribute if a.name == "mode").s = b"cubic"


STRANGE = {
    operator: "NonZero",
    rank: "the rank of",
    size: "sizes of",
    type_: "mixed types",
    opset: "ai.onnx 99",
    zero_point: "zero points of 0",
    scale: "positive scales",
    axis: "along axis 0",
    int32_bias: "type that TensorRT does not support",
    cubic: "unsupported Resize .cubic",
}
