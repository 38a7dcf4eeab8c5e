"""A TensorRT plan as an engine, following the documentation of TensorRT 11 (Python API, "The Runtime").

A plan works with one TensorRT version on one GPU, and loading it runs code from it.  So `mona export --format trt`
also writes model.plan.json: the version and GPU it was built for, and the SHA-256 of the plan and of its model.  A
plan that does not match is refused before TensorRT sees it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Kind
from mona_infer.errors import InputError, MissingPart
from mona_infer.models.file import Model
from mona_infer.system.optional_parts import install_command, requirements

PROFILE = (1, 16, 64)  # fewest, usual and most slices at a time


def plan_path(model: Model) -> Path:
    return model.path.with_suffix(".plan")


def usable() -> str:
    """Why TensorRT cannot be used on this machine; empty if it can."""
    try:
        import tensorrt  # noqa: F401
        from cuda.bindings import runtime
    except Exception as error:  # the package is missing, or its native library does not load
        return f"TensorRT is not installed ({' '.join(str(error).split())[:200]})"
    status, count = runtime.cudaGetDeviceCount()
    return "" if int(status) == 0 and count > 0 else "there is no NVIDIA GPU, or its driver does not respond"


def require() -> None:
    """Refuse to continue without TensorRT and a GPU."""
    why = usable()
    if why:
        needed = install_command(*requirements("gpu").values())
        raise MissingPart(f"{why}; on a machine with an NVIDIA GPU, run: {needed}")


def identity() -> dict[str, str]:
    """The TensorRT version and GPU that a plan depends on; if either changes, it must be rebuilt."""
    import tensorrt as trt
    from cuda.bindings import runtime

    properties = _checked(runtime.cudaGetDeviceProperties(0))
    name = bytes(properties.name).split(b"\0")[0].decode(errors="replace")
    return {"tensorrt": str(trt.__version__), "gpu": f"{name} (sm_{properties.major}{properties.minor})"}


class TensorrtEngine:
    """Runs a plan on GPU 0: `plan` if given, else the file next to the model.

    Buffers are allocated once, for the largest batch of the profile.
    """

    def __init__(self, model: Model, plan: bytes | None = None) -> None:
        require()
        import tensorrt as trt
        from cuda.bindings import runtime

        plan = read_plan(model) if plan is None else plan
        self._cuda = runtime
        self._logger = trt.Logger(trt.Logger.ERROR)
        self._runtime = trt.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise InputError(f"{plan_path(model)}: TensorRT cannot load it; rebuild it with `mona export --format trt`")
        self._context = self._engine.create_execution_context()
        self._stream = _checked(runtime.cudaStreamCreate())
        rows, columns = model.task.input_size
        self._input, self._output = (1, rows, columns), (len(model.task.classes), rows, columns)
        self._buffers = {
            name: _checked(runtime.cudaMalloc(PROFILE[2] * int(np.prod(shape)) * 4))
            for name, shape in (("slices", self._input), ("logits", self._output))
        }
        for name, address in self._buffers.items():
            self._context.set_tensor_address(name, int(address))
        self.batch = PROFILE[1]
        self.description = "TensorRT {tensorrt} on {gpu}".format(**identity())

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(slices) > PROFILE[2]:
            raise ValueError(f"expected at most {PROFILE[2]} slices at a time, found {len(slices)}")
        cuda, kind = self._cuda, self._cuda.cudaMemcpyKind
        given = np.ascontiguousarray(slices, np.float32)
        logits = np.empty((len(given), *self._output), np.float32)
        self._context.set_input_shape("slices", (len(given), *self._input))
        there, back = kind.cudaMemcpyHostToDevice, kind.cudaMemcpyDeviceToHost
        buffers, stream = self._buffers, self._stream
        _checked(cuda.cudaMemcpyAsync(buffers["slices"], given.ctypes.data, given.nbytes, there, stream))
        if not self._context.execute_async_v3(int(stream)):
            raise RuntimeError("TensorRT could not start the network")
        _checked(cuda.cudaMemcpyAsync(logits.ctypes.data, buffers["logits"], logits.nbytes, back, stream))
        _checked(cuda.cudaStreamSynchronize(stream))
        return logits

    def __del__(self) -> None:
        for address in getattr(self, "_buffers", {}).values():
            self._cuda.cudaFree(address)
        if hasattr(self, "_stream"):
            self._cuda.cudaStreamDestroy(self._stream)


def build_plan(model: Model, *, timing: bytes = b"") -> tuple[bytes, bytes]:
    """A plan of the model for this GPU, and the timing cache for the next build.

    TensorRT 11 only has strongly typed networks: the ONNX graph sets the precision.
    """
    require()
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model.content):
        why = "; ".join(str(parser.get_error(n)) for n in range(parser.num_errors))
        raise InputError(f"{model.path}: TensorRT cannot read it ({' '.join(why.split())[:300]})")
    config = builder.create_builder_config()
    cache = config.create_timing_cache(timing) or config.create_timing_cache(b"")  # None: damaged
    if not config.set_timing_cache(cache, ignore_mismatch=False):  # from another GPU or version
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    profile = builder.create_optimization_profile()
    profile.set_shape("slices", *((n, 1, *model.task.input_size) for n in PROFILE))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise InputError(f"{model.path}: TensorRT could not build a plan from it for this GPU")
    return bytes(plan), bytes(config.get_timing_cache().serialize())


def facts_of(model: Model, plan: bytes) -> dict[str, str]:
    """What ties a plan to its model."""
    return {"model": model.seal, "sha256": hashlib.sha256(plan).hexdigest()}


def read_plan(model: Model) -> bytes:
    """The plan next to a model, checked against what was recorded when it was built."""
    path = plan_path(model)
    again = "build it with `mona export --format trt` on this machine"
    try:
        content = path.read_bytes()
        facts = json.loads(path.with_suffix(".plan.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is missing or incomplete ({error}); {again}") from error
    wanted = facts_of(model, content)
    if not isinstance(facts, dict) or facts.get("sha256") != wanted["sha256"]:
        raise InputError(f"{path} is damaged or was changed after it was built; {again}")
    if facts.get("model") != wanted["model"]:
        raise InputError(f"{path} was not built from {model.path}; {again}")
    here = identity()
    if any(facts.get(key) != value for key, value in here.items()):
        raise InputError(f"{path} was built for TensorRT {facts.get('tensorrt')} on {facts.get('gpu')}; {again}")
    return content


def _checked(result: Any) -> Any:
    """The result of a cuda.bindings call without its status; raises if the status is an error."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA: {status}")
    return values[0] if values else None


ENGINES = {
    "tensorrt": Kind(
        "a TensorRT plan built by `mona export --format trt` on this machine",
        lambda model, n: TensorrtEngine(model),
        "tensorrt",
        "gpu",
        rank=3,
        plans=True,
        suits=lambda model: plan_path(model).is_file() and not usable(),
    )
}
