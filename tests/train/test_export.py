"""From a run to a model: the same masks as PyTorch, in every precision, or no model at all."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from small_runs import SIDE, TASK, slices_of, small_config

from mona_infer.cli import app
from mona_infer.engine import OnnxEngine
from mona_infer.errors import CheckFailed, InputError, MissingPart
from mona_infer.model import opened, read_model
from mona_infer.volume import Volume
from mona_train import graph, parity
from mona_train.data.case import Case
from mona_train.export import export_run, load_run, newest_run
from mona_train.networks import UNet
from mona_train.parity import certify, keep, read_parity
from mona_train.run import checkpoint
from mona_train.run.folder import write_config

pytestmark = pytest.mark.xdist_group("export")  # the run is exported once, in one worker
AFFINE = np.diag([1.5, 1.5, 10.0, 1.0])


def case(patient):
    voxels = slices_of(patient)[0].transpose(2, 1, 0)
    return Case(f"p{patient}", f"p{patient}", (), lambda: Volume(voxels, AFFINE), None)


@pytest.fixture(scope="module")
def network():
    """Trained until it is sure: of a network that hesitates, fp16 would rightly change a voxel or two."""
    torch.manual_seed(0)
    network = UNet(4, width=0.25)
    step = torch.optim.Adam(network.parameters(), 1e-2)
    images, labels = (np.concatenate(parts) for parts in zip(*(slices_of(n) for n in range(4)), strict=True))
    given = torch.from_numpy(images.astype(np.float32) / 65535)[:, None]
    for _ in range(200):
        loss = torch.nn.functional.cross_entropy(network(given).logits, torch.from_numpy(labels).long())
        loss.backward()
        step.step()
        step.zero_grad()
    return network.eval()


@pytest.fixture(scope="module")
def exported(network):
    return graph.to_onnx(network, (SIDE, SIDE))


@pytest.fixture
def run(network, exported, tmp_path, monkeypatch):
    """A finished run's folder; torch.export's half minute is taken once for all tests."""
    monkeypatch.setattr(graph, "to_onnx", lambda *_: graph._copy(exported))
    folder = tmp_path / "runs" / "small"
    write_config(small_config("unet-f"), folder)
    facts = {"task": json.loads(TASK.to_json()), "predicts": "unet", "step": 16}
    for name in ("best", "last"):
        path = folder / "checkpoints" / f"{name}.safetensors"
        checkpoint.save(path, checkpoint.pack("student.unet", network.state_dict()), facts)
    scores = {"dsc": 0.9, "classes": {"RV": {"dsc": 0.9}}}
    results = {"chosen": "best", "validation": {"best": scores, "last": scores}, "test": scores}
    (folder / "results.json").write_text(json.dumps(results))
    keep(network, [case(n) for n in range(4, 7)], TASK, folder / "parity.npz")
    return folder


def torch_logits(network, slices):
    with torch.no_grad():
        return network(torch.from_numpy(slices)[:, None]).logits.numpy()


def test_logits_are_those_of_torch_for_any_number_of_slices(run, network):
    model, certificate = export_run(run)
    engine = OnnxEngine(model, threads=1)
    for n in (1, 2, 3, 17):
        slices = np.random.default_rng(n).random((n, SIDE, SIDE), np.float32)
        logits = engine.run(slices)
        assert logits.shape == (n, 4, SIDE, SIDE)
        np.testing.assert_allclose(logits, torch_logits(network, slices), atol=1e-4)
    assert certificate["voxels_changed"] == 0
    assert certificate["largest_logit_difference"] < 1e-4


def test_the_graph_holds_what_inference_needs_and_no_more(run):
    model = onnx.load(export_run(run)[0].path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} == {"Conv", "LeakyRelu", "MaxPool", "Resize", "Concat"}
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["slices", "logits"]
    weights = sum(int(np.prod(t.dims)) for t in model.graph.initializer)
    assert weights < sum(p.numel() for p in UNet(4, width=0.25).parameters())  # batch norm went into convolutions
    assert b"/home" not in model.SerializeToString()
    assert b"site-packages" not in model.SerializeToString()  # the exporter's stack traces


def test_the_model_knows_where_it_comes_from(run):
    model, certificate = export_run(run)
    assert read_model(run / "model.onnx").facts == model.facts
    assert model.task == TASK
    assert model.facts["metrics"]["test"]["dsc"] == 0.9
    assert model.facts["run"]["checkpoint"] == "best"
    assert model.facts["run"]["weights"] == load_run(run).weights
    assert {"licence", "data", "code", "precision"} <= set(model.facts)
    assert model.facts["certificate"] == json.loads(json.dumps(certificate))
    beside = json.loads((run / "model.certificate.json").read_text())
    assert beside["sha256"] == model.seal
    assert beside["passed"]
    assert export_run(run)[0].content == model.content  # the same run, the same bytes


@pytest.mark.parametrize(("precision", "kind"), [("fp16", onnx.TensorProto.FLOAT16), ("int8", onnx.TensorProto.INT8)])
def test_smaller_precisions_are_in_the_graph_and_certified(run, precision, kind, monkeypatch):
    monkeypatch.setattr(parity, "VOXELS", 1e-3)  # a toy hesitates; a real run's fp16 changed 4 of 405,504 voxels
    model, certificate = export_run(run, precision)
    assert model.path.name == f"model-{precision}.onnx"
    assert model.precision == precision
    kinds = {t.data_type for t in onnx.load(model.path).graph.initializer}
    assert kind in kinds
    assert certificate["passed"]
    assert min(certificate["dsc"].values()) >= {"fp16": 0.999, "int8": 0.99}[precision]


def test_a_sample_of_bits_of_a_real_model(run):
    content = export_run(run)[0].content
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(content), 50):
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError):
            opened("model.onnx", bytes(changed))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_broken_export_is_refused_and_leaves_no_model(run, exported, monkeypatch, precision):
    export_run(run, precision)
    broken = graph._copy(exported)
    for tensor in broken.graph.initializer:
        if tensor.name.endswith("head.bias"):
            values = onnx.numpy_helper.to_array(tensor) + np.array([3, 0, 0, 0], np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    monkeypatch.setattr(graph, "to_onnx", lambda *_: graph._copy(broken))
    with pytest.raises(CheckFailed, match="no model was written"):
        export_run(run, precision)
    assert not list(run.glob("model*"))


def test_the_limits_of_the_certificate(network, run):
    parity = read_parity(run / "parity.npz")

    class Wrong:
        words, batch = "wrong", 8

        def __init__(self, pixels, gap=0.0):
            self.pixels, self.gap = pixels, gap

        def run(self, slices):
            logits = torch_logits(network, slices) + self.gap
            flat = np.moveaxis(logits, 1, -1).reshape(-1, 4)
            flat[: self.pixels] = np.roll(flat[: self.pixels], 1, axis=1)
            self.pixels = 0  # in the first batch only
            return np.moveaxis(flat.reshape(len(slices), SIDE, SIDE, 4), -1, 1)

    share = parity.classes.size // 10_000
    assert certify(Wrong(0), parity)["passed"]
    assert certify(Wrong(share), parity)["voxels_changed"] == share
    assert not certify(Wrong(10 * share + 10), parity)["passed"]
    assert not certify(Wrong(0, gap=np.nan), parity)["passed"]
    assert certify(Wrong(0, gap=0.5), parity)["largest_logit_difference"] == pytest.approx(0.5, abs=1e-4)


def test_the_parity_set_holds_whole_volumes_and_no_pickle(run, network):
    parity = read_parity(run / "parity.npz")
    assert parity.cases == ["p4", "p5", "p6"]
    assert parity.slices.shape == (12, SIDE, SIDE)
    np.testing.assert_allclose(parity.logits, torch_logits(network, parity.inputs())[parity.sampled], atol=1e-5)
    np.testing.assert_array_equal(torch_logits(network, parity.inputs()).argmax(axis=1), parity.classes)
    content = (run / "parity.npz").read_bytes()
    (run / "parity.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="damaged"):
        export_run(run)


def test_the_command_names_what_it_wrote_and_what_tensorrt_needs(run, monkeypatch, capsys):
    monkeypatch.chdir(run.parent.parent)
    app(["export"], standalone_mode=False)  # finds the run
    out = capsys.readouterr().out
    assert "0 of 12,288 voxels changed class" in out
    assert out.splitlines()[-1] == "wrote runs/small/model.onnx, runs/small/model.certificate.json"
    with pytest.raises(MissingPart, match=r"mona export runs/small --format trt --precision fp32.*trtexec --onnx"):
        app(["export", "--format", "trt"], standalone_mode=False)
    assert read_model(run / "model.onnx").precision == "fp32"


@pytest.mark.parametrize("args", [["--format", "coreml"], ["--precision", "fp8"], ["nowhere"]])
def test_wrong_usage(run, monkeypatch, args):
    monkeypatch.chdir(run.parent.parent)
    with pytest.raises(InputError):
        app(["export", *args], standalone_mode=False)
    assert not list(run.glob("model*"))


def test_without_a_run_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="mona train"):
        newest_run()


def test_a_run_that_has_not_finished_exports_its_best_so_far(run):
    (run / "results.json").unlink()
    said = []
    export_run(run, say=said.append)
    assert "has not finished" in said[0]


def test_a_graph_that_tensorrt_could_not_take_is_refused(exported):
    graph.check_for_tensorrt(exported)
    strange = graph._copy(exported)
    strange.graph.node[0].op_type = "NonZero"
    with pytest.raises(CheckFailed, match="NonZero"):
        graph.check_for_tensorrt(strange)
    unknown = graph._copy(exported)
    del unknown.graph.value_info[:]
    with pytest.raises(CheckFailed, match="rank"):
        graph.check_for_tensorrt(unknown)


def test_what_training_saw(tmp_path):
    from small_runs import small_cache

    from mona_train.data.seen import seen

    found = seen(small_cache())
    assert found["slice spacing"] == (8.0, 8.0)
    assert found["in-plane spacing"] == (1.0, 1.0)
    assert replace(TASK, seen=found) == type(TASK).from_json(replace(TASK, seen=found).to_json())
