"""From a run with a first look to a mask: trained, exported, certified and used, with and without the data."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import onnx
import pytest
from helpers.small_settings import kept
from helpers.train_commands import Done, mona
from helpers.wide_phantoms import few_phantoms
from numpy.typing import NDArray
from scipy.ndimage import label

from mona_infer.engines.onnx import OnnxEngine
from mona_infer.models import bundled
from mona_infer.models.file import Model, read_model
from mona_infer.segmenter import Segmenter
from mona_infer.task import LOOK
from mona_train.data.adapters import phantom
from mona_train.data.cache import Cache
from mona_train.data.resolved import read_resolved
from mona_train.engine import first_look, post_processing
from mona_train.engine.torch_engine import TorchEngine
from mona_train.export import certify as certificates
from mona_train.export import first_look as exported_look
from mona_train.export import make
from mona_train.export import onnx as graph
from mona_train.export.parity import read_parity
from mona_train.run.checkpoint import weights_hash
from mona_train.run.load import load_run

pytestmark = pytest.mark.xdist_group("first look")  # one worker trains and exports it once
SETTINGS = {"pixels": "96", "window": "64x64", "width": "0.25", "precision": "32-true", "optimiser.lr": "0.005"}
SETTINGS |= {"optimiser.hold": "0.9", "every.validate": "90", "every.save": "60"}
RUN = ["train", "--dataset", "phantom", "--preset", "quick", "--method", "unet-l", "--ratio", "0.5", "--steps", "180"]
RUN += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module", autouse=True)
def soon() -> Iterator[None]:
    """Few patients, a first look that hardly learned, post-processing that is always worth it, and torch.export's long
    work done once for each network.
    """
    exported: dict[tuple[str, tuple[int, int]], Any] = {}

    def to_onnx(network: Any, size: tuple[int, int]) -> Any:
        key = weights_hash(network.state_dict()), size
        if key not in exported:
            exported[key] = graph.to_onnx(network, size)
        return graph.copied(exported[key])

    with few_phantoms(train=4), pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_look, "STEPS", 40)
        patch.setattr(post_processing, "GAIN", -1.0)
        for module in (make, exported_look):
            patch.setattr(module, "to_onnx", to_onnx)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work").resolve()


@pytest.fixture(scope="module")
def trained(place: Path) -> Done:
    done = mona(place, *RUN, "--out", "runs/look")
    assert done.code == 0, done.err
    return done


@pytest.fixture(scope="module")
def run(place: Path, trained: Done) -> Path:
    return place / "runs/look"


@pytest.fixture(scope="module")
def model(place: Path, run: Path) -> Model:
    done = mona(place, "export", run)
    assert done.code == 0, done.err
    assert "voxels changed class" in done.out and "first look: 0 of " in done.out
    return read_model(run / "model.onnx")


def copy_of(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place / run.name, ignore=shutil.ignore_patterns("model*")))


def masks_of(run: Path) -> dict[str, NDArray[np.uint8]]:
    """The validation and test cases, as the run itself segments them."""
    found = load_run(run)
    assert found.look is not None
    segmenter = Segmenter(found.task, engine=TorchEngine(found.network), first_look=TorchEngine(found.look))
    cases = [case for case in phantom.cases(Path()) if case.part != "train"]
    return {case.name: segmenter(case.image()).voxels for case in cases}


def refused(done: Done, *words: str) -> None:
    assert done.code == 2, done
    assert done.err.startswith("mona: ") and done.err.count("\n") == 1 and "Traceback" not in done.err
    assert [word for word in words if word not in done.err] == []


def test_the_run_says_what_the_network_sees_and_keeps_the_first_look(trained: Done, run: Path, place: Path) -> None:
    said = " ".join(trained.out.split())
    assert "mm, their shape is kept (the long side of a typical one is" in said
    assert "the network sees 64x64 around the organ, found by a first look" in said
    assert "slices of 64x64, 4+4 per step" in said
    resolved = read_resolved(run)
    assert resolved is not None and resolved.cache == place / "cache/phantom-96"
    cache = Cache.open(resolved.cache)
    assert resolved.corners.keys() == {case.name for case in cache.cases if case.part == "train"}
    (shared,) = (resolved.cache / "looks").iterdir()
    assert shared.read_bytes() == (run / "first_look.safetensors").read_bytes()
    results = json.loads((run / "results.json").read_text())
    assert {*results["average"]} == {"teacher", "student"} and results["post_processing"]["on"] == "validation"
    assert results["post_processing"]["keep_largest"] == results["post_processing"]["fill_holes"] == ["RV", "Myo", "LV"]


def test_the_certificate_covers_both_looks(model: Model, run: Path) -> None:
    certificate = model.facts["certificate"]
    slices = sum(len(case.image().voxels.T) for case in phantom.cases(Path()) if case.part == "val")
    assert certificate["passed"] and certificate["voxels_changed"] == 0
    assert (certificate["slices"], certificate["voxels"]) == (slices, slices * 64 * 64)
    assert certificate["first_look"] == {"slices": slices, "voxels": slices * 64 * 64, "voxels_changed": 0}
    assert model.first_look is not None and model.first_look.task.input_size == (64, 64)
    assert model.task == load_run(run).task and model.task.first_look and model.task.window == (64, 64)
    assert model.task.keep_largest == model.task.fill_holes == (1, 2, 3)


@pytest.mark.parametrize("harm", ["changed", "left out"])
def test_a_first_look_that_is_not_the_runs_is_not_exported(
    harm: str, place: Path, run: Path, model: Model, tmp_path: Path
) -> None:
    """Every pixel counts: it decides where the network looks."""
    other = copy_of(run, tmp_path)
    with np.load(other / "parity.npz") as found:
        arrays = dict(found)
    if harm == "changed":
        arrays["organ"][0, 5, 5] ^= 1
    else:
        del arrays["look"]
    np.savez_compressed(other / "parity.npz", **arrays)
    done = mona(place, "export", other)
    assert (done.code, harm) in ((1, "changed"), (2, "left out")), done
    assert ("first look: 1 of " in done.out) if harm == "changed" else ("it has no first look" in done.err)
    assert not list(other.glob("model*"))


def test_segmenting_gives_the_masks_of_validation(run: Path, model: Model, tmp_path: Path) -> None:
    """Not a voxel differs: windows, both networks, and post-processing, which leaves one piece of a class."""
    wanted = masks_of(run)
    assert len(wanted) == 4
    for case in phantom.cases(Path()):
        if case.name in wanted:
            scan = case.image()
            nib.save(nib.Nifti1Image(scan.voxels, scan.affine), tmp_path / "scan.nii.gz")
            done = mona(tmp_path, "segment", "scan.nii.gz", "--out", f"{case.name}.nii.gz", "--model", model.path)
            assert done.code == 0, done.err
            assert np.array_equal(np.asarray(nib.load(tmp_path / f"{case.name}.nii.gz").dataobj), wanted[case.name])
    pieces = [label(mask == n)[1] for mask in wanted.values() for n in (1, 2, 3)]
    assert max(pieces) == 1


def test_results_are_those_of_the_masks(run: Path) -> None:
    results, wanted = json.loads((run / "results.json").read_text()), masks_of(run)
    for part in ("val", "test"):
        truth = {case.name: case.label().voxels for case in phantom.cases(Path()) if case.part == part and case.label}
        pairs = [(wanted[name] == n, true == n) for name, true in truth.items() for n in (1, 2, 3)]
        dsc = [2 * (ours & theirs).sum() / (ours.sum() + theirs.sum()) for ours, theirs in pairs]
        found = results["validation"]["best"] if part == "val" else results["test"]
        assert found["dsc"] == pytest.approx(np.mean(dsc), abs=1e-9)


def test_the_run_alone_is_enough_to_export(
    run: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied to a machine without cache and data."""
    other = copy_of(run, tmp_path)
    facts = json.loads((other / "resolved.json").read_text())
    (other / "resolved.json").write_text(json.dumps({**facts, "data": "/nowhere", "cache": "/nowhere/cache"}))
    monkeypatch.setattr(phantom, "_image", None)
    done = mona(tmp_path, "export", other)
    assert done.code == 0, done.err
    assert read_model(other / "model.onnx").content == model.content
    refused(mona(tmp_path, "export", other, "--precision", "int8"), "int8 takes its scales from training slices")


@pytest.mark.parametrize("harm", ["cut", "missing", "other"])
def test_a_damaged_first_look_is_named_with_what_to_do(harm: str, place: Path, run: Path, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path)
    path = other / "first_look.safetensors"
    whole = path.read_bytes()
    if harm == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif harm == "missing":
        path.unlink()
    else:
        shutil.copy(other / "checkpoints/last.safetensors", path)
    refused(mona(place, "export", other), str(path), f"delete it and run `mona train --resume {other}`")
    if harm != "missing":
        refused(mona(place, "train", "--resume", other), str(path))
        path.unlink()
    done = mona(place, "train", "--resume", other)  # makes it again, from the cache
    assert done.code == 0, done.err
    assert path.read_bytes() == whole


def test_a_resumed_run_is_the_run_and_trains_no_first_look_again(
    place: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before its first checkpoint, and the cache has lost its first look."""
    other = copy_of(run, tmp_path)
    monkeypatch.setattr(first_look, "train_first_look", None)
    shared = place / "cache/phantom-96/looks"
    shutil.move(shared, tmp_path / "looks")
    try:
        for name in ("results.json", "parity.npz", "checkpoints/last.safetensors", "checkpoints/best.safetensors"):
            (other / name).unlink()
        done = mona(place, "train", "--resume", other)
    finally:
        shutil.move(tmp_path / "looks", shared)
    assert done.code == 0, done.err
    assert kept(other) == {name: content for name, content in kept(run).items() if not name.startswith("model")}


def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates that pass: a network that hardly learned hesitates."""
    monkeypatch.setattr(certificates, "VOXELS", 0.05)
    for precision in ("fp16", "int8"):
        monkeypatch.setitem(certificates.DSC, precision, 0.0)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_smaller_precisions_store_the_first_look_in_half_precision(
    precision: str, place: Path, run: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for layers whose rounding would change a pixel; it computes in fp32 all the same."""
    lenient(monkeypatch)
    used: list[NDArray[np.float32]] = []
    real = make.to_int8
    monkeypatch.setattr(make, "to_int8", lambda graph, slices: used.append(slices) or real(graph, slices))
    done = mona(place, "export", run, "--precision", precision)
    assert done.code == 0, done.err
    smaller = read_model(run / f"model-{precision}.onnx")
    assert smaller.first_look is not None and model.first_look is not None
    assert smaller.first_look.precision == "fp32" and len(smaller.first_look.content) < len(model.first_look.content)
    kinds = {t.data_type for t in onnx.load_from_string(smaller.first_look.content).graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds
    looks = np.random.default_rng(0).random((3, LOOK, LOOK), np.float32)
    ours, theirs = (OnnxEngine(m.first_look, threads=1).run(looks) for m in (smaller, model) if m.first_look)
    assert 0 < np.abs(ours - theirs).max() < 0.05 * np.abs(theirs).max()
    assert smaller.facts["certificate"]["first_look"]["voxels_changed"] == 0
    case = next(case for case in phantom.cases(Path()) if case.part == "val")
    assert Segmenter(smaller, engine="cpu").segment(case.image()).mask.voxels.any()
    if precision == "int8":  # its scales are from windows around the organ, as the network sees them
        resolved = read_resolved(run)
        assert resolved is not None
        cache = resolved.open_cache()
        first = next(case for case in cache.cases if case.part == "train")
        (top, left), (low, high) = resolved.corners[first.name], resolved.levels[first.name]
        window = cache.images[first.first, top : top + 64, left : left + 64] / 65535
        window = np.clip((window - low) / (high - low), 0, 1)
        assert used[0].shape[1:] == (64, 64) and np.abs(used[0][0] - window).max() < 1e-5


def test_layers_that_would_change_a_pixel_stay_as_they_are(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_run(run)
    assert found.look is not None
    parity = read_parity(run / "parity.npz")
    whole = exported_look.first_look_file(found.look, parity, small=False)
    monkeypatch.setattr(exported_look, "look_changes", lambda *_: 1)
    assert exported_look.first_look_file(found.look, parity, small=True) == whole


def test_a_run_becomes_a_model_that_ships(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tools/bundle_model.py: the model, and a card that says of the run what its files say."""
    spec = importlib.util.spec_from_file_location("bundle_model", Path(__file__).parents[2] / "tools/bundle_model.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bundle_model", tool)
    spec.loader.exec_module(tool)
    with pytest.raises(SystemExit, match="describe phantom in SETS"):
        tool.bundle(run, "hearts", tmp_path, "abc")
    monkeypatch.setitem(tool.SETS, "phantom", tool.ACDC)
    lenient(monkeypatch)
    tool.bundle(run, "hearts", tmp_path, "abc")
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    (card,) = bundled.bundled()
    model, results = read_model(card.model), json.loads((run / "results.json").read_text())["validation"]["best"]
    assert model.card == card and model.facts["certificate"]["passed"]
    assert card.dsc == pytest.approx(results["dsc"], abs=5e-5)
    low, high = results["classes"]["RV"]["ci95"]["dsc"] if results["ci95"] else (np.nan, np.nan)
    assert f"| RV | {results['classes']['RV']['dsc']:.3f} | {low:.3f} to {high:.3f} |" in card.text
    for said in (*RUN[1:3], "--ratio 0.5", "--set width=0.25", "commit `abc`", "2 of 4 training patients", model.seal):
        assert said in " ".join(card.text.split()), said
    assert max(len(line) for line in card.text.splitlines() if not line.startswith("mona train")) <= 120
    assert card.scans.possible["slices"] == (1, 50) and card.scans.oblique
