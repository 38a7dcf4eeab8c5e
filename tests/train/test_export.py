"""From a run to a model: the same masks as PyTorch, in every precision, or no model at all."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from helpers.small_runs import SIDE, TASK, slices_of, small_config, write_dataset

from mona_infer.cli.main import app
from mona_infer.engines.onnx import OnnxEngine
from mona_infer.errors import CheckFailed, InputError, MissingPart
from mona_infer.models.file import opened, read_model, seal
from mona_infer.volume import Volume
from mona_train.data.adapters import locate
from mona_train.data.case import Case
from mona_train.data.prepare import prepare
from mona_train.data.resolved import resolve
from mona_train.export import certify as certificates
from mona_train.export import int8 as quantise
from mona_train.export import make
from mona_train.export import onnx as graph
from mona_train.export.calibration import calibration_slices
from mona_train.export.certify import certify
from mona_train.export.fp16 import rounded, to_fp16
from mona_train.export.make import export_run
from mona_train.export.parity import keep, read_parity
from mona_train.export.tensorrt_check import check_for_tensorrt
from mona_train.networks import UNet
from mona_train.run import checkpoint
from mona_train.run.folder import write_config
from mona_train.run.load import load_run, newest_run

pytestmark = pytest.mark.xdist_group("export")  # the run is exported once, in one worker
AFFINE = np.diag([1.5, 1.5, 10.0, 1.0])


def case(patient):
    voxels = slices_of(patient)[0].transpose(2, 1, 0)
    return Case(f"heart{patient}", f"heart{patient}", (), lambda: Volume(voxels, AFFINE), None)


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


@pytest.fixture(scope="module")
def resolved(tmp_path_factory):
    """The run's data, in a folder that is not called like its adapter, and its cache."""
    place = tmp_path_factory.mktemp("data")
    adapter, source = locate(str(write_dataset(place / "downloads" / "hearts")))
    return resolve(small_config("unet-f"), adapter, source, prepare(adapter, source, place / "cache", (SIDE, SIDE)))


@pytest.fixture
def run(network, exported, resolved, tmp_path, monkeypatch):
    """A finished run's folder; torch.export's half minute is taken once for all tests."""
    monkeypatch.setattr(make, "to_onnx", lambda *_: graph.copied(exported))
    folder = tmp_path / "runs" / "small"
    write_config(small_config("unet-f"), folder)
    resolved.write(folder)
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


def test_the_model_knows_where_it_comes_from(run, resolved):
    model, certificate = export_run(run)
    assert read_model(run / "model.onnx").facts == model.facts
    assert model.task == replace(TASK, seen=resolved.task.seen)
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
    monkeypatch.setattr(certificates, "VOXELS", 1e-3)  # a toy hesitates; a real run's fp16 changed 4 of 405,504 voxels
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


def weights_of(model):
    return {t.name: onnx.numpy_helper.to_array(t).copy() for t in model.graph.initializer}


def with_weights(model, weights):
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    return model


def convolutions(model):
    return [node for node in model.graph.node if node.op_type == "Conv"]


def altered(model):
    """One weight of the first convolution, after export."""
    weights = weights_of(model)
    weights[convolutions(model)[0].input[1]][0, 0, 1, 1] += 3
    return with_weights(model, weights)


def half_pixels(model):
    """Upsampling with align_corners=False: the commonest slip of a re-implementation."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "coordinate_transformation_mode":
                attribute.s = b"half_pixel"
    return model


def loud(model):
    """The same network in fp32, its first activation 100,000 times as loud: more than half precision holds."""
    weights = weights_of(model)
    first, second = convolutions(model)[:2]
    for name in first.input[1:]:
        weights[name] *= np.float32(1e5)
    weights[second.input[1]] /= np.float32(1e5)
    return with_weights(model, weights)


BROKEN = [("fp32", altered), ("int8", altered), ("fp32", half_pixels), ("fp16", loud)]


@pytest.mark.parametrize(("precision", "broken"), BROKEN, ids=[f"{p} {b.__name__}" for p, b in BROKEN])
def test_a_broken_export_is_refused_and_leaves_no_model(run, exported, monkeypatch, precision, broken):
    (run / f"model{'' if precision == 'fp32' else '-' + precision}.onnx").write_bytes(b"of an earlier export")
    wrong = broken(graph.copied(exported))
    monkeypatch.setattr(make, "to_onnx", lambda *_: graph.copied(wrong))
    with pytest.raises(CheckFailed, match="no model was written"):
        export_run(run, precision)
    assert not list(run.glob("model*"))


def test_fp16_is_certified_as_half_precision_computes_it(run, exported, network):
    """ONNX Runtime computes fp16 graphs in fp32 on a processor, where an overflow would not show."""
    slices = read_parity(run / "parity.npz").inputs()[:2]

    def logits(model):
        content = seal(graph.serialise(model), {"task": json.loads(TASK.to_json())})
        return OnnxEngine(opened("m.onnx", content), threads=1).run(slices)

    wanted = torch_logits(network, slices)
    np.testing.assert_allclose(logits(loud(graph.copied(exported))), wanted, atol=1e-3)  # fp32 has room for it
    assert not np.isfinite(logits(rounded(to_fp16(loud(graph.copied(exported)))))).all()
    np.testing.assert_allclose(logits(rounded(to_fp16(exported))), wanted, atol=0.2)
    steps = np.abs(logits(rounded(to_fp16(exported))) - logits(exported)).max()
    assert steps > 0  # it did round


def test_equalising_channels_changes_no_answer(run, exported, network):
    slices = read_parity(run / "parity.npz").inputs()
    equal = quantise.equalised(exported, slices)
    content = seal(graph.serialise(equal), {"task": json.loads(TASK.to_json())})
    logits = OnnxEngine(opened("m.onnx", content), threads=1).run(slices)
    np.testing.assert_allclose(logits, torch_logits(network, slices), atol=2e-4)
    heard = [quantise._activated(equal, n.output[0]) for n in convolutions(equal)[:-1]]
    before, after = (quantise._loudest(model, heard, slices) for model in (exported, equal))

    def spread(loudest):
        return np.mean([np.log(m.max() / np.maximum(m, m.max() / quantise.LOUDEST)).mean() for m in loudest.values()])

    assert spread(before) > 0.3
    assert spread(after) < 0.05


def test_int8_is_symmetric_per_channel_and_keeps_its_ends_float(exported):
    slices = np.concatenate([slices_of(n)[0] for n in range(3)]).astype(np.float32) / 65535
    model = quantise.to_int8(exported, slices)
    onnx.checker.check_model(model, full_check=True)
    weights = weights_of(model)
    readers = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    first, *middle, last = convolutions(model)
    assert not {*first.input, *last.input} & set(readers)
    for node in middle:
        activation, weight = readers[node.input[0]], readers[node.input[1]]
        assert weights[activation.input[1]].shape == ()
        assert weights[weight.input[0]].dtype == np.int8
        assert np.abs(weights[weight.input[0]].astype(int)).max() == 127
        assert weights[weight.input[1]].shape == (len(weights[weight.input[0]]),)
        assert not weights[activation.input[2]].any()
        assert not weights[weight.input[2]].any()
        assert weights[node.input[2]].dtype == np.float32  # TensorRT dequantises int8, and an int32 bias is none


def test_int8_takes_its_scales_from_training_cases_that_it_is_not_certified_on(run, resolved, monkeypatch):
    """heart4 and heart5 are in the parity set, and one of them or both in the training set too."""
    used, real = [], quantise.to_int8
    monkeypatch.setattr(make, "to_int8", lambda model, slices: used.append(slices) or real(model, slices))
    model, _ = export_run(run, "int8")
    learned = [n for n in range(6) if f"heart{n}" in resolved.split.labelled_patients]
    free = [n for n in learned if n not in (4, 5)]
    assert len(learned) == 5 and 3 <= len(free) < 5
    assert model.facts["calibration"] == {"slices": 4 * len(free), "of": "training cases"}
    assert len(used[0]) == 4 * len(free)
    certified = {np.rint(s * 65535).astype(np.uint16).tobytes() for s in read_parity(run / "parity.npz").inputs()}
    assert not [s for s in used[0] if np.rint(s * 65535).astype(np.uint16).tobytes() in certified]


def test_int8_is_refused_where_no_slice_is_left_to_calibrate_on(run):
    everything = replace(read_parity(run / "parity.npz"), cases=[f"heart{n}" for n in range(7)])
    with pytest.raises(InputError, match="not checked on"):
        calibration_slices(run, load_run(run), everything)


def test_the_limits_of_the_certificate(network, run):
    parity = read_parity(run / "parity.npz")

    class Wrong:
        description, batch = "wrong", 8

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
    assert parity.cases == ["heart4", "heart5", "heart6"]
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


def test_a_plan_is_certified_before_it_is_written(run, monkeypatch):
    from helpers import fake_tensorrt

    from mona_train.export.tensorrt import export_plan

    fake_tensorrt.install(monkeypatch)
    model, _ = export_run(run)
    said = []
    plan, beside = export_plan(model, run, say=said.append)
    facts = json.loads(beside.read_text())
    assert facts["certificate"]["passed"]
    assert facts["certificate"]["engine"] == "TensorRT 11.4.0 on Fake GPU (sm_90)"
    assert facts["profile"] == [1, 16, 64]
    assert facts["model"] == model.seal
    assert "passed" in said[0]
    assert (run / "timing.cache").is_file()
    with monkeypatch.context() as patched:  # a GPU that overflows
        patched.setattr(fake_tensorrt.Context, "execute_async_v3", lambda self, stream_handle: True)
        with pytest.raises(CheckFailed, match="not written"):
            export_plan(model, run)
    assert not plan.exists()
    assert not beside.exists()


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


def operator(model):
    model.graph.node[0].op_type = "NonZero"


def rank(model):
    del model.graph.value_info[:]


def size(model):
    model.graph.value_info[0].type.tensor_type.shape.dim[2].dim_param = "rows"


def type_(model):
    name = convolutions(model)[0].input[1]
    weights = weights_of(model)
    weights[name] = weights[name].astype(np.float16)
    with_weights(model, weights)


def opset(model):
    model.opset_import[0].version = 99


def zero_point(model):
    next(t for t in model.graph.initializer if t.name.endswith("_zero")).raw_data = b"\x05"


def scale(model):
    weights = weights_of(model)
    name = next(n for n in weights if n.endswith("_scale"))
    weights[name] = weights[name] * 0
    with_weights(model, weights)


def axis(model):
    node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.attribute)
    node.attribute[0].i = 1


def int32_bias(model):
    """What ONNX Runtime's quantiser writes by default."""
    node = convolutions(model)[2]
    bias = weights_of(model)[node.input[2]]
    parts = {
        "b": np.zeros(len(bias), np.int32),
        "s": np.ones(len(bias), np.float32),
        "z": np.zeros(len(bias), np.int32),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in parts.items())
    model.graph.node.append(onnx.helper.make_node("DequantizeLinear", [*parts], ["bias"], name="bias", axis=0))
    node.input[2] = "bias"
    model.CopyFrom(graph.cleaned(model))


def cubic(model):
    node = next(n for n in model.graph.node if n.op_type == "Resize")
    next(a for a in node.attribute if a.name == "mode").s = b"cubic"


STRANGE = {
    operator: "NonZero",
    rank: "the rank of",
    size: "sizes of",
    type_: "mixed types",
    opset: "ai.onnx 99",
    zero_point: "zero points of 0",
    scale: "positive scales",
    axis: "along axis 0",
    int32_bias: "type that TensorRT does not support",
    cubic: "unsupported Resize .cubic",
}


@pytest.fixture(scope="module")
def int8(exported):
    return quantise.to_int8(exported, slices_of(0)[0].astype(np.float32) / 65535)


@pytest.mark.parametrize("change", STRANGE, ids=lambda change: change.__name__)
def test_a_graph_that_tensorrt_could_not_take_is_refused(int8, change):
    check_for_tensorrt(int8)
    strange = graph.copied(int8)
    change(strange)
    with pytest.raises(CheckFailed, match=STRANGE[change]):
        check_for_tensorrt(strange)


def test_what_training_saw(tmp_path):
    from helpers.small_runs import small_cache

    from mona_train.data.training_ranges import training_ranges

    found = training_ranges(small_cache())
    assert found["slice spacing"] == (8.0, 8.0)
    assert found["in-plane spacing"] == (1.0, 1.0)
    assert replace(TASK, seen=found) == type(TASK).from_json(replace(TASK, seen=found).to_json())
