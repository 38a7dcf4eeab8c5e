"""OpenVINO on the CPU as an engine; optional, installed by the extra `openvino`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Kind
from mona_infer.errors import InputError, MissingPart
from mona_infer.models.file import Model
from mona_infer.system.optional_parts import install_command, requirements, version
from mona_kernels.native import cores


class OpenvinoEngine:
    """OpenVINO.  It loads the bytes whose seal was checked, never a path."""

    def __init__(self, model: Model, *, threads: int = 0) -> None:
        try:
            import openvino
        except ImportError as error:
            needed = install_command(*requirements("openvino").values())
            raise MissingPart(f"OpenVINO is not installed; run: {needed}") from error
        settings = {
            # On CPUs with bf16, OpenVINO would use it by default, but the certificate is for float32.
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads or cores(),
            "PERFORMANCE_HINT": "LATENCY",
        }
        try:
            core = openvino.Core()
            compiled = core.compile_model(core.read_model(model.content), "CPU", settings)
            ends = [[list(end.partial_shape)[1:] for end in part] for part in (compiled.inputs, compiled.outputs)]
            found = [[[int(size.get_length()) for size in shape] for shape in part] for part in ends]
        except Exception as error:  # its exceptions share no base class
            raise InputError(f"{model.path}: OpenVINO cannot load it ({' '.join(str(error).split())[:300]})") from error
        size = model.task.input_size
        wanted = [[[1, *size]], [[len(model.task.classes), *size]]]
        if found != wanted:
            raise InputError(
                f"{model.path}: the network's input and output shapes are {found}, but its Task needs {wanted}"
            )
        self._request = compiled.create_infer_request()
        self.batch = 1
        self.description = f"OpenVINO {version('openvino')}, cpu"

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        self._request.infer([np.ascontiguousarray(slices[:, None])])
        return np.array(self._request.get_output_tensor(0).data)  # a copy: the next call overwrites this memory


ENGINES = {
    "openvino": Kind("OpenVINO on the CPU", lambda model, n: OpenvinoEngine(model, threads=n), "openvino", "openvino")
}
