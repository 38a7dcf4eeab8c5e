"""ONNX Runtime as an engine: on the processor, on an NVIDIA GPU, and with its TensorRT provider."""

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

# Of a batch on the processor: at 256x256 one slice costs as much as in fours and leaves reading and restoring more to
# overlap with, at 96x96 it costs a tenth more than in eights (`tools/bench_segment.py engines`, docs/results.md).
PIXELS = 256 * 256


class OnnxEngine:
    """ONNX Runtime.  It is given the bytes whose seal was checked, never a path."""

    # Each with those that take what it cannot; ours are the first's alone (`mona export` checks that for TensorRT).
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
            raise MissingPart(f"the ONNX Runtime installed here has no {provider}; on a machine with a GPU: {needed}")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or cores()
        options.log_severity_level = 4  # what goes wrong is raised as well
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # reading and restoring need the cores
        chosen = [(provider, tensorrt_options(model) if device == "ort-tensorrt" else {}), *others]
        try:
            self._session = ort.InferenceSession(model.content, options, providers=chosen)
        except Exception as error:  # the runtime's exceptions have no common base of their own
            raise InputError(f"{model.path}: ONNX Runtime refuses it ({_first_line(error)})") from error
        if self._session.get_providers()[0] != provider:  # it falls back to the processor with nothing but a log line
            raise MissingPart(
                f"{provider} does not start here: no GPU, or a driver that does not fit; use --engine cpu"
            )
        self._input, self._output = _signature(model, self._session)
        self.batch = max(1, PIXELS // math.prod(model.task.input_size)) if device == "cpu" else PROFILE[1]
        self.description = f"ONNX Runtime {ort.__version__}, {device}"

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        (logits,) = self._session.run([self._output], {self._input: slices[:, None]})
        return np.asarray(logits)


def onnx_runtime() -> Any:
    """The module, its telemetry off: by default its wheels keep a device id in the home folder and report usage."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
    try:
        import onnxruntime
    except ImportError as error:
        absent = version("onnxruntime") is None and version("onnxruntime-gpu") is None
        words = "is not installed" if absent else f"does not load ({_first_line(error)})"
        needed = install_command(*requirements("cpu").values())
        raise MissingPart(f"ONNX Runtime {words}, and models run on it: {needed}") from error
    onnxruntime.disable_telemetry_events()  # where the caller's own program had imported it before
    return onnxruntime


def tensorrt_options(model: Model) -> dict[str, Any]:
    """The provider's options: its caches and the profile of a plan.  The precision is the graph's.

    It names a cached engine after the graph and not after the weights, so that it would run last week's weights for a
    model that was exported again: every seal has a folder of its own.
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
    """Names of the one input and the one output, whose shapes must be those of the Task."""
    task, inputs, outputs = model.task, session.get_inputs(), session.get_outputs()
    wanted = [[1, *task.input_size], [len(task.classes), *task.input_size]]
    found = [[list(end.shape[1:]) for end in ends] for ends in (inputs, outputs)]
    if found != [[shape] for shape in wanted] or {e.type for e in (*inputs, *outputs)} != {"tensor(float)"}:
        raise InputError(f"{model.path}: its network takes and gives {found}, its Task says {wanted}")
    return inputs[0].name, outputs[0].name


def _first_line(error: Exception) -> str:
    return " ".join((str(error).splitlines() or [""])[0][:300].split())


def _has_cuda(model: Model) -> bool:
    return OnnxEngine.PROVIDERS["cuda"][0] in onnx_runtime().get_available_providers()


ENGINES = {
    "cpu": Kind(
        "ONNX Runtime on the processor", lambda model, n: OnnxEngine(model, threads=n), "onnxruntime", "cpu", rank=1
    ),
    "cuda": Kind(
        "ONNX Runtime on an NVIDIA GPU",
        lambda model, n: OnnxEngine(model, device="cuda", threads=n),
        "onnxruntime-gpu",
        "gpu",
        rank=2,
        suits=_has_cuda,
    ),
    "ort-tensorrt": Kind(
        "ONNX Runtime's TensorRT provider, which builds its engine here and keeps it beside the model",
        lambda model, n: OnnxEngine(model, device="ort-tensorrt", threads=n),
        "onnxruntime-gpu",
        "gpu",
    ),
}
