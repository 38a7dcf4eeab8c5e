"""The model file: its seal covers every bit, and what is inside is read as if a stranger had sent it."""

import json

import numpy as np
import onnx
import pytest
from helpers import models
from helpers.hostile_models import hostile

from mona_infer.engines.base import choose
from mona_infer.engines.onnx import OnnxEngine
from mona_infer.errors import InputError, MissingPart
from mona_infer.models.file import SEAL_BYTES, opened, read_model, seal
from mona_infer.models.protobuf import entry, fields

CONTENT = models.model_bytes(metrics={"dsc": 0.9})


def test_it_is_onnx_whose_metadata_any_program_can_read(tmp_path):
    path = models.write(tmp_path / "model.onnx", metrics={"dsc": 0.9})
    plain = onnx.load(path)
    onnx.checker.check_model(plain)
    metadata = {entry.key: entry.value for entry in plain.metadata_props}
    assert json.loads(metadata["mona"])["metrics"] == {"dsc": 0.9}
    model = read_model(path)
    assert metadata["mona_sha256"] == model.seal
    assert model.task == models.TASK
    assert model.facts["metrics"] == {"dsc": 0.9}
    assert path.read_bytes() == CONTENT


def test_every_bit_is_sealed():
    """Of this small file, all of them; of a real one `test_export` takes a sample."""
    for at in range(len(CONTENT)):
        for bit in range(8):
            changed = bytearray(CONTENT)
            changed[at] ^= 1 << bit
            with pytest.raises(InputError):
                opened("model.onnx", bytes(changed))


def test_every_cut_and_every_addition_is_refused():
    for end in range(len(CONTENT)):
        with pytest.raises(InputError):
            opened("model.onnx", CONTENT[:end])
    for extra in (b"\0", b"x" * SEAL_BYTES, CONTENT[-SEAL_BYTES:]):
        with pytest.raises(InputError):
            opened("model.onnx", CONTENT + extra)


@pytest.mark.parametrize(("name", "content"), [pytest.param(*h, id=h[0]) for h in hostile()])
def test_what_is_sealed_but_no_model_is_refused_as_input_error(name, content):
    with pytest.raises(InputError) as caught:
        opened("model.onnx", content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_graph_that_contradicts_its_task_is_refused():
    task = json.loads(models.TASK.to_json())
    task["size"] = [64, 64]
    with pytest.raises(InputError, match="its Task needs"):
        OnnxEngine(opened("model.onnx", seal(models.graph().SerializeToString(), {"task": task})))
    broken = models.graph()
    broken.graph.node[0].op_type = "NoSuchOperator"
    content = seal(broken.SerializeToString(), {"task": json.loads(models.TASK.to_json())})
    with pytest.raises(InputError, match="cannot load it"):
        OnnxEngine(opened("model.onnx", content))


def test_engines():
    model = opened("model.onnx", CONTENT)
    assert "cpu" in choose("auto", model).description
    with pytest.raises(InputError, match="unknown engine"):
        choose("gpu", model)
    for missing in ("cuda", "tensorrt", "ort-tensorrt"):
        with pytest.raises(MissingPart, match="pip install"):
            choose(missing, model)
    slices = np.random.default_rng(0).random((3, 32, 32), np.float32)
    logits = choose("cpu", model, threads=1).run(slices)
    weight, bias = models.bands()
    np.testing.assert_allclose(logits, slices[:, None] * weight[:, None, None] + bias[:, None, None], atol=1e-4)


def test_the_wire_format():
    message = entry(b"key", b"v" * 300, 14)
    ((number, pair),) = fields(memoryview(message))
    assert number == 14
    assert {n: bytes(v) for n, v in fields(pair)} == {1: b"key", 2: b"v" * 300}
    for bad in (b"\x72", b"\x72\x05ab", b"\x00", b"\x0b", b"\xff" * 11, b"\x09\x01"):
        with pytest.raises(ValueError):
            list(fields(memoryview(bad)))
