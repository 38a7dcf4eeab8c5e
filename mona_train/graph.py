"""A network as an ONNX graph: logits only, any number of slices, in the precision that was asked for.

TensorRT 11 takes the precision from the graph and from nowhere else, so fp16 and int8 are made here: half-precision
weights and operators, or Q/DQ pairs around convolutions with scales from real slices.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mona_infer.errors import CheckFailed, InputError

OPSET = 20
MOST = 4096  # slices at a time that the graph is exported for
PRECISIONS = ("fp32", "fp16", "int8")
# What our graphs are made of.  TensorRT 11 supports each of them (its operator table), with ranks known beforehand.
OPERATORS = {"Conv", "LeakyRelu", "MaxPool", "Resize", "Concat", "Cast", "QuantizeLinear", "DequantizeLinear"}
TYPES = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8, onnx.TensorProto.INT32}


class Logits(nn.Module):  # type: ignore[misc]
    """The network without the features that only training looks at."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, slices: Tensor) -> Tensor:
        return self.network(slices).logits


def to_onnx(network: nn.Module, size: tuple[int, int]) -> onnx.ModelProto:
    """The network in evaluation mode: no dropout, batch norm folded into the convolutions (by onnxscript)."""
    batch = torch.export.Dim("batch", min=1, max=MOST)
    example = torch.zeros(2, 1, *size)  # of one slice the exporter would take "one" for a constant
    plain = Logits(network).cpu().float().eval()
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            plain,
            (example,),
            dynamo=True,
            input_names=["slices"],
            output_names=["logits"],
            dynamic_shapes=({0: batch},),
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
    return cleaned(program.model_proto)


def cleaned(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without the exporter's notes: they hold paths of this machine, and differ from one export to the next."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    del graph.value_info[:]
    graph.name = "mona"
    _sort(graph)
    return onnx.shape_inference.infer_shapes(model)


def _sort(graph: onnx.GraphProto) -> None:
    """Nodes after what they need: the standard asks for it, the fp16 converter appends its casts at the end."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    waiting, ordered = list(graph.node), []
    while waiting:
        ready = [node for node in waiting if known.issuperset(node.input)]
        if not ready:
            raise ValueError(f"nothing gives what {waiting[0].name} needs")
        ordered += ready
        known |= {name for node in ready for name in node.output}
        waiting = [node for node in waiting if not known.issuperset(node.output)]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights and operators in half precision; slices and logits stay fp32, so that every engine is used alike.

    The last convolution stays fp32 too, as in int8: half precision has steps of 0.008 at a logit of 10, and rounding
    decides between classes there.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with _quiet():
        half = convert_float_to_float16(
            _copy(model), keep_io_types=True, op_block_list=[], node_block_list=[_last(model).name]
        )
    return cleaned(half)


def to_int8(model: onnx.ModelProto, slices: NDArray[np.float32]) -> onnx.ModelProto:
    """Convolutions in 8 bits, symmetric, weights per channel, activations calibrated on `slices` (n, rows, columns).

    The last convolution, which makes the logits, stays as it is: it is cheap, and ties between classes are decided
    there.  So do a convolution's results: the next one's Q/DQ pair quantises them, once.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Slices(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter(np.array_split(slices, -(-len(slices) // 4)))

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            part = next(self._batches, None)
            return None if part is None else {"slices": part[:, None]}

    with _quiet(), tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "int8.onnx"
        quantize_static(
            _copy(model),
            str(result),
            Slices(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            nodes_to_exclude=[_last(model).name],
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "OpTypesToExcludeOutputQuantization": ["Conv"],
            },
        )
        return cleaned(onnx.load(str(result)))


def check_for_tensorrt(model: onnx.ModelProto) -> None:
    """Operators, types and static ranks that TensorRT supports; a graph of ours that has others is a bug of ours."""
    strange = sorted({node.op_type for node in model.graph.node} - OPERATORS)
    if strange:
        raise CheckFailed(f"the graph has operators that were not checked against TensorRT: {', '.join(strange)}")
    kinds = {tensor.data_type for tensor in model.graph.initializer} - TYPES
    if kinds:
        raise CheckFailed(f"the graph has weights of types that TensorRT does not take: {sorted(kinds)}")
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)
             if value.type.tensor_type.HasField("shape")}  # fmt: skip
    unknown = [name for node in model.graph.node for name in node.output if name not in known]
    if unknown:
        raise CheckFailed(f"the rank of {unknown[0]} is not known before the network runs, and TensorRT needs it")


def converted(model: onnx.ModelProto, precision: str, slices: NDArray[np.float32]) -> onnx.ModelProto:
    if precision not in PRECISIONS:
        raise InputError(f"expected --precision {', '.join(PRECISIONS)}, found {precision!r}")
    if precision == "fp16":
        return to_fp16(model)
    return to_int8(model, slices) if precision == "int8" else model


def _last(model: onnx.ModelProto) -> onnx.NodeProto:
    """The convolution that makes the logits."""
    found: onnx.NodeProto = next(node for node in model.graph.node if "logits" in node.output)
    return found


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporter and quantiser log and print as they go; what goes wrong is raised as well."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def serialise(model: onnx.ModelProto) -> bytes:
    content: Any = model.SerializeToString(deterministic=True)
    return bytes(content)
