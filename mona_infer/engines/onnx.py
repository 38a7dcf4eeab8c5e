"""ONNX Runtime as an engine: on the CPU, on an NVIDIA GPU, and with its TensorRT provider."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Kind
from mona_infer.engines.tensorrt import PROFILE
from mona_infer.errors import InputError, MissingPart
from mona_infer.models.file import Model
from mona_infer.system.optional_parts import install_command, requirements, version
from mona_kernels.native import cores

# Pixels per batch of a lane on the CPU.  At 256x256, slices run as fast one by one as in batches of four, and take less
# memory; at 96x96, batches of eight save a tenth (`tools/bench_segment.py engines`, docs/results.md).
PIXELS = 256 * 256
# Up to so many threads, each runs batches of its own: on two cores a tenth to a fifth faster than both in one network.
# Each lane needs memory for its batch, so where there are more threads they share one.
LANES = 4
OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc")


class OnnxEngine:
    """ONNX Runtime.  It loads the bytes whose seal was checked, never a path."""

    # Each provider, then its fallbacks.  Our graphs need no fallback (`mona export` checks that for TensorRT).
    PROVIDERS: ClassVar = {
        "cpu": ["CPUExecutionProvider"],
        "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "ort-tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
    }

    def __init__(self, model: Model, *, device: str = "cpu", threads: int = 0) -> None:
        ort = onnx_runtime()
        provider, *others = self.PROVIDERS[device]
        if provider not in ort.get_available_providers():
            needed = install_command(*requirements("gpu").values())
            raise MissingPart(f"the installed ONNX Runtime has no {provider}; on a machine with a GPU, run: {needed}")
        options = ort.SessionOptions()
        threads = threads or cores()
        self.lanes = threads if device == "cpu" and threads <= LANES else 1
        options.intra_op_num_threads = threads // self.lanes
        options.log_severity_level = 4  # errors are also raised
        options.add_session_config_entry(
            "session.intra_op.allow_spinning", "0"
        )  # leave the cores to reading and restoring
        chosen = [(provider, tensorrt_options(model) if device == "ort-tensorrt" else {}), *others]
        try:
            self._session = ort.InferenceSession(model.content, options, providers=chosen)
        except Exception as error:  # the runtime's exceptions share no base class
            raise InputError(f"{model.path}: ONNX Runtime cannot load it ({_first_line(error)})") from error
        if self._session.get_providers()[0] != provider:  # it falls back to the CPU with only a log line
            raise MissingPart(
                f"{provider} cannot start: there is no GPU, or its driver does not match; use --engine cpu"
            )
        self._input, self._output = _signature(model, self._session)
        on_cpu = self.lanes * max(1, PIXELS // math.prod(model.task.input_size))
        self.batch = on_cpu if device == "cpu" else PROFILE[1]
        self.description = f"ONNX Runtime {ort.__version__}, {device}"

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        try:
            (logits,) = self._session.run([self._output], {self._input: slices[:, None]})
        except Exception as error:  # the runtime's exceptions share no base class, and none is for memory
            if not any(sign in str(error) for sign in OUT_OF_MEMORY):
                raise
            raise MemoryError("not enough memory for the network; close other programs, or lower --batch") from error
        return np.asarray(logits)


def onnx_runtime() -> Any:
    """The module, its telemetry off: by default its wheels keep a device id in the home folder and report usage."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
    try:
        import onnxruntime
    except ImportError as error:
        absent = version("onnxruntime") is None and version("onnxruntime-gpu") is None
        problem = "is not installed" if absent else f"cannot be loaded ({_first_line(error)})"
        needed = install_command(*requirements("cpu").values())
        raise MissingPart(f"ONNX Runtime {problem}, but models need it; run: {needed}") from error
    onnxruntime.disable_telemetry_events()  # in case the caller's own program had imported it before
    return onnxruntime


def tensorrt_options(model: Model) -> dict[str, Any]:
    """The provider's options: its caches and the batch sizes to build for.  The graph sets the precision.

    The provider names a cached engine after the graph, not the weights.  A model that was exported again would run with
    the old weights, so every seal gets its own cache folder.
    """
    shape = "x".join(map(str, (1, *model.task.input_size)))
    profile = {
        f"trt_profile_{end}_shapes": f"slices:{n}x{shape}"
        for end, n in zip(("min", "opt", "max"), PROFILE, strict=True)
    }
    folder = model.path.with_suffix(".ort-tensorrt") / model.seal[:16]
    folder.mkdir(parents=True, exist_ok=True)
    caches = {f"trt_{kind}_cache_{part}": value for kind in ("engine", "timing") for part, value in
              (("enable", True), ("path", str(folder)))}  # fmt: skip
    return {**caches, **profile}


def _signature(model: Model, session: Any) -> tuple[str, str]:
    """Names of the single input and output, whose shapes must match the Task."""
    task, inputs, outputs = model.task, session.get_inputs(), session.get_outputs()
    wanted = [[1, *task.input_size], [len(task.classes), *task.input_size]]
    found = [[list(end.shape[1:]) for end in ends] for ends in (inputs, outputs)]
    if found != [[shape] for shape in wanted] or {e.type for e in (*inputs, *outputs)} != {"tensor(float)"}:
        raise InputError(
            f"{model.path}: the network's input and output shapes are {found}, but its Task needs {wanted}"
        )
    return inputs[0].name, outputs[0].name


def _first_line(error: Exception) -> str:
    return " ".join((str(error).splitlines() or [""])[0][:300].split())


def _has_cuda(model: Model) -> bool:
    return OnnxEngine.PROVIDERS["cuda"][0] in onnx_runtime().get_available_providers()


ENGINES = {
    "cpu": Kind("ONNX Runtime on the CPU", lambda model, n: OnnxEngine(model, threads=n), "onnxruntime", "cpu", rank=1),
    "cuda": Kind(
        "ONNX Runtime on an NVIDIA GPU",
        lambda model, n: OnnxEngine(model, device="cuda", threads=n),
        "onnxruntime-gpu",
        "gpu",
        rank=2,
        suits=_has_cuda,
    ),
    "ort-tensorrt": Kind(
        "ONNX Runtime's TensorRT provider, which builds its engine on first use and caches it next to the model",
        lambda model, n: OnnxEngine(model, device="ort-tensorrt", threads=n),
        "onnxruntime-gpu",
        "gpu",
        plans=True,
    ),
}
