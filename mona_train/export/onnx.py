"""A network as an ONNX graph: logits only, any number of slices, fp32.  `fp16` and `int8` make it smaller."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from torch import Tensor, nn

OPSET = 20
MOST = 4096  # the largest batch that the graph is exported for


class Logits(nn.Module):  # type: ignore[misc]
    """The network without the features, which only training uses."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, slices: Tensor) -> Tensor:
        return self.network(slices).logits


def to_onnx(network: nn.Module, size: tuple[int, int]) -> onnx.ModelProto:
    """The network in evaluation mode: no dropout, batch norm folded into the convolutions (by onnxscript)."""
    batch = torch.export.Dim("batch", min=1, max=MOST)
    example = torch.zeros(2, 1, *size)  # with a single slice the exporter would take 1 for a constant
    plain = Logits(network).cpu().float().eval()
    with quiet(), torch.no_grad():
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
    """Without the exporter's notes, which contain paths of this machine and differ between exports."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    del graph.value_info[:]
    graph.name = "mona"
    _sort(graph)
    _drop_unused(graph)
    return onnx.shape_inference.infer_shapes(model)


def _sort(graph: onnx.GraphProto) -> None:
    """Sort nodes after their inputs, as the standard requires; converters append theirs at the end."""
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    waiting, ordered = list(graph.node), []
    while waiting:
        ready = [node for node in waiting if known.issuperset(node.input)]
        if not ready:
            raise ValueError(f"no node computes the inputs of {waiting[0].name}")
        ordered += ready
        known |= {name for node in ready for name in node.output}
        waiting = [node for node in waiting if not known.issuperset(node.output)]
    replace(graph.node, ordered)


def _drop_unused(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in used])


def replace(field: Any, parts: list[Any]) -> None:
    """Replace the contents of a repeated field.  Copies first: clearing the field would free parts that are in it."""
    copies = [type(part).FromString(part.SerializeToString()) for part in parts]
    del field[:]
    field.extend(copies)


def head(model: onnx.ModelProto) -> onnx.NodeProto:
    """The convolution that computes the logits."""
    found: onnx.NodeProto = next(node for node in model.graph.node if "logits" in node.output)
    return found


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter and the converters, which log and print; errors are still raised."""
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
