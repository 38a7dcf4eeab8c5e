"""The part of TensorRT 11's Python API, and of cuda.bindings, that mona calls: names and arguments as documented.

There is no GPU to test on, so networks are computed by ONNX Runtime and "device memory" is a dictionary.  What this
shows is that our side calls what the documentation describes, in its order, and refuses what it should; whether
NVIDIA's side does what it describes, only a machine with a GPU can show.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np

MAGIC = b"plan:"


def install(monkeypatch, *, gpus=1, name=b"Fake GPU\0\0"):
    trt, cuda, bindings = ModuleType("tensorrt"), ModuleType("cuda"), ModuleType("cuda.bindings")
    trt.__version__ = "11.4.0"
    for part in (Logger, Builder, OnnxParser, Runtime):
        setattr(trt, part.__name__, part)
    bindings.runtime = CudaRuntime(gpus, name)
    for path, module in (("tensorrt", trt), ("cuda", cuda), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, path, module)
    return trt, bindings.runtime


class Logger:
    ERROR = 1

    def __init__(self, severity):
        assert severity == self.ERROR


class Builder:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def create_network(self, flags):
        assert flags == 0  # strongly typed always, explicit batch always: version 11 has no flag for either
        return SimpleNamespace(content=b"")

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        (profile,) = config.profiles
        assert profile.shapes["slices"][0][0] == 1
        return memoryview(MAGIC + network.content)


class Config:
    def __init__(self):
        self.profiles, self._cache = [], None

    def create_timing_cache(self, serialized_timing_cache):
        return None if serialized_timing_cache == b"damaged" else TimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache, ignore_mismatch):
        assert isinstance(cache, TimingCache) and not ignore_mismatch
        self._cache = cache
        return cache.content != b"of another GPU"

    def get_timing_cache(self):
        return self._cache

    def add_optimization_profile(self, profile):
        self.profiles.append(profile)


class TimingCache:
    def __init__(self, content):
        self.content = content

    def serialize(self):
        return memoryview(self.content + b"+")


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, input, min, opt, max):
        self.shapes[input] = (min, opt, max)


class OnnxParser:
    num_errors = 1

    def __init__(self, network, logger):
        self._network = network

    def parse(self, model):
        self._network.content = bytes(model)
        return b"Unsupported" not in model

    def get_error(self, index):
        return "In node 3: UNSUPPORTED_NODE"


class Runtime:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def deserialize_cuda_engine(self, serialized_engine):
        return Engine(serialized_engine.removeprefix(MAGIC)) if serialized_engine.startswith(MAGIC) else None


class Engine:
    def __init__(self, content):
        self._content = content

    def create_execution_context(self):
        return Context(self._content)


class Context:
    def __init__(self, content):
        import onnxruntime

        self._session, self._addresses = onnxruntime.InferenceSession(content), {}

    def set_tensor_address(self, name, memory):
        self._addresses[name] = memory
        return True

    def set_input_shape(self, name, shape):
        assert name == "slices"
        self._shape = shape
        return True

    def execute_async_v3(self, stream_handle):
        assert stream_handle == 7
        memory = CudaRuntime.memory
        given = memory[self._addresses["slices"]][: int(np.prod(self._shape))].reshape(self._shape)
        (logits,) = self._session.run(None, {"slices": given})
        memory[self._addresses["logits"]][: logits.size] = logits.ravel()
        return True


class CudaRuntime:
    """Every call gives a status first."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
    memory: ClassVar = {}

    def __init__(self, gpus, name):
        self._gpus, self._properties = gpus, SimpleNamespace(name=name, major=9, minor=0)

    def cudaGetDeviceCount(self):
        return (0, self._gpus) if self._gpus else (100, 0)

    def cudaGetDeviceProperties(self, device):
        return 0, self._properties

    def cudaStreamCreate(self):
        return 0, 7

    def cudaStreamDestroy(self, stream):
        return (0,)

    def cudaStreamSynchronize(self, stream):
        return (0,)

    def cudaMalloc(self, size):
        address = 1000 + len(self.memory)
        self.memory[address] = np.full(size // 4, np.nan, np.float32)
        return 0, address

    def cudaFree(self, address):
        self.memory[address] = np.empty(0, np.float32)
        return (0,)

    def cudaMemcpyAsync(self, dst, src, count, kind, stream):
        if kind == self.cudaMemcpyKind.cudaMemcpyHostToDevice:
            ctypes.memmove(self.memory[dst].ctypes.data, src, count)
        else:
            ctypes.memmove(dst, self.memory[src].ctypes.data, count)
        return (0,)
