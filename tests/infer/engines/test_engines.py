"""Engines other than ONNX Runtime on the processor: as far as they can be tested without a GPU."""

import json
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import fake_tensorrt, models

from mona_infer.engines.base import choose
from mona_infer.engines.onnx import OnnxEngine, tensorrt_options
from mona_infer.engines.tensorrt import TensorrtEngine, build_plan, facts_of, identity, plan_path, usable
from mona_infer.errors import InputError, MissingPart
from mona_infer.models.file import opened, read_model, seal

SLICES = np.random.default_rng(0).random((5, models.SIDE, models.SIDE), np.float32)


@pytest.fixture
def model(tmp_path):
    return read_model(models.write(tmp_path / "model.onnx"))


def write_plan(model, content, changed=None):
    facts = {**facts_of(model, content), **identity(), **(changed or {})}
    plan_path(model).write_bytes(content)
    plan_path(model).with_suffix(".plan.json").write_text(json.dumps(facts))


def test_a_plan_gives_the_answers_of_its_model(model, monkeypatch):
    fake_tensorrt.install(monkeypatch)
    content, times = build_plan(model)
    assert times == b"+"
    write_plan(model, content)
    engine = choose("auto", model)  # a plan made here is what auto takes
    assert engine.description == "TensorRT 11.4.0 on Fake GPU (sm_90)"
    wanted = OnnxEngine(model, threads=1).run(SLICES)
    for n in (1, 5, 2):  # the same buffers, more and fewer slices
        np.testing.assert_array_equal(engine.run(SLICES[:n]), wanted[:n])
    with pytest.raises(ValueError, match="at most 64"):
        engine.run(np.zeros((65, models.SIDE, models.SIDE), np.float32))


@pytest.mark.parametrize("timing", [b"", b"known", b"damaged", b"of another GPU"])
def test_a_timing_cache_helps_or_is_begun_anew(model, monkeypatch, timing):
    fake_tensorrt.install(monkeypatch)
    assert build_plan(model, timing=timing)[1] == (b"known+" if timing == b"known" else b"+")


def test_a_plan_that_does_not_belong_here_is_refused_before_tensorrt_sees_it(model, monkeypatch):
    trt, _ = fake_tensorrt.install(monkeypatch)
    content, _ = build_plan(model)
    monkeypatch.setattr(trt, "Runtime", None)  # nothing gets that far
    with pytest.raises(InputError, match="missing or incomplete"):
        choose("tensorrt", model)
    for changed, words in (
        ({"model": "0" * 64}, "was not built from"),
        ({"sha256": "0" * 64}, "damaged or was changed"),
        ({"gpu": "Other GPU (sm_80)"}, "built for TensorRT 11.4.0 on Other GPU"),
        ({"tensorrt": "11.0.0"}, "built for TensorRT 11.0.0"),
    ):
        write_plan(model, content, changed)
        with pytest.raises(InputError, match=words):
            choose("tensorrt", model)
    write_plan(model, content)
    plan_path(model).write_bytes(content[:-1])
    with pytest.raises(InputError, match="damaged or was changed"):
        choose("tensorrt", model)


def test_what_tensorrt_cannot_read_or_load(model, monkeypatch):
    fake_tensorrt.install(monkeypatch)
    with pytest.raises(InputError, match="TensorRT cannot load it"):
        TensorrtEngine(model, b"no plan")
    facts = {"task": json.loads(models.TASK.to_json())}
    odd = opened("model.onnx", seal(models.graph().SerializeToString(), {**facts, "licence": "Unsupported"}))
    with pytest.raises(InputError, match="UNSUPPORTED_NODE"):
        build_plan(odd)


def test_without_a_gpu_it_says_so(model, monkeypatch):
    assert "not installed" in usable()
    fake_tensorrt.install(monkeypatch, gpus=0)
    assert "no NVIDIA GPU" in usable()
    with pytest.raises(MissingPart, match="pip install"):
        TensorrtEngine(model)
    assert "ONNX Runtime" in choose("auto", model).description


def test_the_provider_keeps_engines_of_other_weights_apart(tmp_path):
    options = []
    for bias in (0, 1):
        changed = models.graph(bias=np.full(4, bias, np.float32))
        path = tmp_path / "model.onnx"  # exported again under the same name
        content = seal(changed.SerializeToString(), {"task": json.loads(models.TASK.to_json())})
        options.append(tensorrt_options(opened(path, content)))
    assert options[0]["trt_engine_cache_path"] != options[1]["trt_engine_cache_path"]
    assert options[0]["trt_engine_cache_enable"]
    assert options[0]["trt_timing_cache_enable"]
    assert options[0]["trt_profile_max_shapes"] == "slices:64x1x32x32"
    assert not any("fp16" in key or "int8" in key for key in options[0])  # the graph decides


def test_openvino(model):
    pytest.importorskip("openvino", reason="OpenVINO is not installed (the extra `openvino`)")
    engine = choose("openvino", model, threads=1)
    assert "OpenVINO" in engine.description
    wanted = OnnxEngine(model, threads=1).run(SLICES)
    kept = engine.run(SLICES[:2])
    for n in (1, 5, 2):
        np.testing.assert_allclose(engine.run(SLICES[:n]), wanted[:n], atol=1e-4)
    np.testing.assert_allclose(kept, wanted[:2], atol=1e-4)  # not overwritten by the calls after it
    task = {**json.loads(models.TASK.to_json()), "size": [64, 64]}
    with pytest.raises(InputError, match="its Task needs"):
        choose("openvino", opened("m.onnx", seal(models.graph().SerializeToString(), {"task": task})))
    broken = models.graph()
    broken.graph.node[0].op_type = "NoSuchOperator"
    content = seal(broken.SerializeToString(), {"task": json.loads(models.TASK.to_json())})
    with pytest.raises(InputError, match="OpenVINO cannot load it"):
        choose("openvino", opened("m.onnx", content))


def test_openvino_that_is_missing_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingPart, match=r"pip install .*openvino"):
        choose("openvino", model)


def test_an_engine_without_memory_says_so(model, monkeypatch):
    engine = OnnxEngine(model, threads=1)
    told = "[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for requested buffer of size 9"
    monkeypatch.setattr(engine, "_session", Mock(run=Mock(side_effect=RuntimeError(told))))
    with pytest.raises(MemoryError, match="lower --batch"):
        engine.run(SLICES)
    monkeypatch.setattr(engine, "_session", Mock(run=Mock(side_effect=RuntimeError("another fault"))))
    with pytest.raises(RuntimeError, match="another fault"):
        engine.run(SLICES)
