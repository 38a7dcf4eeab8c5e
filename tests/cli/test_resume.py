"""Runs that go on elsewhere, that somebody else is training, that diverge; and from bf16 training to a mask."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from helpers.dataset_files import lits
from helpers.small_runs import write_dataset
from helpers.train_commands import DATA, RUN, SMALL, mona, setting, start

from mona_train.data.resolved import read_resolved
from mona_train.export import certify as certificates
from mona_train.export import int8 as quantise
from mona_train.export import make
from mona_train.export import onnx as graph
from mona_train.export.parity import read_parity
from mona_train.run import checkpoint
from mona_train.run.folder import read_config
from mona_train.run.load import load_run
from mona_train.run.metrics import read

SHORT = [*DATA, "--method", "unet-l", "--ratio", "0.4", "--steps", "4"]
SHORT += setting({**SMALL, "batch.labelled": "2", "batch.unlabelled": "6", "every.save": "1"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work").resolve()
    write_dataset(folder / "hearts")
    return folder


@pytest.fixture(scope="module")
def short(place: Path) -> Path:
    """A finished run of 4 steps."""
    done = mona(place, *SHORT, "--out", "runs/short")
    assert done.code == 0, done.err
    return place / "runs/short"


def copy_of(run: Path, name: str) -> Path:
    return Path(shutil.copytree(run, run.with_name(name)))


def refused(done: Any, *words: str) -> None:
    assert done.code == 2, done
    assert done.err.startswith("mona: ") and done.err.count("\n") == 1 and "Traceback" not in done.err
    assert [word for word in words if word not in done.err] == []


# ---- precision


def test_a_run_trained_in_bf16_is_measured_exported_and_used_in_full_precision(place: Path) -> None:
    done = mona(place, *RUN, "--set", "precision=bf16-mixed", "--out", "runs/bf16")
    assert done.code == 0, done.err
    assert "trained in bf16-mixed; measured in full precision" in " ".join(done.out.split())
    run = place / "runs/bf16"
    assert "measured in 32-true" in (run / "log.txt").read_text()
    results = json.loads((run / "results.json").read_text())
    assert results["precision"] == {"trained": "bf16-mixed", "measured": "32-true"}
    kept, network = read_parity(run / "parity.npz"), load_run(run).network  # a plain U-Net, which no Fabric has wrapped
    with torch.no_grad():
        expected = network(torch.from_numpy(kept.inputs())[:, None]).logits.numpy()
    np.testing.assert_allclose(kept.logits, expected[kept.sampled], atol=1e-5)
    exported = mona(place, "export", "runs/bf16")
    assert exported.code == 0 and " 0 of 4,096 voxels changed class" in exported.out, exported
    scan, mask = place / "hearts/imagesTs/heart6_0000.nii.gz", place / "mask.nii.gz"
    segmented = mona(place, "segment", scan, "--out", mask, "--model", run / "model.onnx")
    assert segmented.code == 0, segmented.err
    assert nib.load(mask).shape == nib.load(scan).shape
    # the numbers in results.json are those of the masks that users get
    ours, theirs = (np.asarray(nib.load(path).dataobj) for path in (mask, place / "hearts/labelsTs/heart6.nii.gz"))
    dsc = [2 * ((ours == n) & (theirs == n)).sum() / ((ours == n).sum() + (theirs == n).sum()) for n in (1, 2, 3)]
    assert [results["test"]["classes"][name]["dsc"] for name in ("RV", "Myo", "LV")] == pytest.approx(dsc, abs=1e-9)


def test_a_bf16_run_of_an_older_version_gets_a_new_parity_set(place: Path, short: Path) -> None:
    """They kept what the network answered under autocast, which no export can give."""
    run = copy_of(short, "old-bf16")
    text = (run / "run.toml").read_text()
    (run / "run.toml").write_text(text.replace('precision = "32-true"', 'precision = "bf16-mixed"'))
    with np.load(run / "parity.npz") as found:
        arrays = dict(found)
    about = json.loads(str(arrays["about"]))
    del about["precision"]
    arrays |= {"about": np.array(json.dumps(about)), "classes": 3 - arrays["classes"]}  # rounded beyond recognition
    np.savez_compressed(run / "parity.npz", **arrays)
    done = mona(place, "export", run)
    assert done.code == 0 and " 0 of 4,096 voxels changed class" in done.out, done


# ---- what a run resolved


def test_int8_of_a_data_set_given_by_path_is_calibrated_on_training_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is called lits-32x32; export used to look for LiTS17-32x32, and took the slices of the check."""
    lits(tmp_path / "downloads/LiTS17", numbers=(0, 1, 2, 100))  # three to learn from, one to test on
    words = ["--method", "unet-l", "--ratio", "0.5", "--preset", "paper", "--steps", "2"]
    words += [*setting(SMALL), "--out", "runs/ct"]
    trained = mona(tmp_path, "train", "--dataset", "downloads/LiTS17", *words)
    assert trained.code == 0, trained.err
    run, real, used = tmp_path / "runs/ct", quantise.to_int8, []
    monkeypatch.setattr(make, "to_int8", lambda model, slices: used.append(slices) or real(model, slices))
    monkeypatch.setitem(certificates.DSC, "int8", 0.0)  # two steps make no network that int8 could keep
    (tmp_path / "elsewhere").mkdir()
    done = mona(tmp_path / "elsewhere", "export", "../runs/ct", "--precision", "int8", "--json")
    assert done.code == 0, done.err
    model = graph.onnx.load(run / "model-int8.onnx")
    facts = json.loads(next(entry.value for entry in model.metadata_props if entry.key == "mona"))
    kept, resolved = read_parity(run / "parity.npz"), read_resolved(run)
    assert resolved is not None and resolved.adapter == "lits" and resolved.cache == tmp_path / "cache/lits-32x32"
    assert facts["calibration"] == {"slices": 15, "of": "training cases"} and len(used[0]) == 15
    checked = {np.rint(slice_ * 65535).astype(np.uint16).tobytes() for slice_ in kept.inputs()}
    assert not [s for s in used[0] if np.rint(s * 65535).astype(np.uint16).tobytes() in checked]
    assert "CC BY-NC-ND 4.0" in facts["licence"] and facts["data"]["dataset"] == "lits"


def test_without_training_slices_int8_is_refused_and_fp32_is_not(place: Path, short: Path) -> None:
    run = copy_of(short, "copied")
    facts = json.loads((run / "resolved.json").read_text())
    (run / "resolved.json").write_text(json.dumps({**facts, "cache": "/nowhere/cache/hearts-32x32"}))
    refused(mona(place, "export", run, "--precision", "int8"), "int8 takes its scales from training slices", "--resume")
    assert not list(run.glob("model*"))
    assert mona(place, "export", run).code == 0


def test_an_int8_model_made_where_the_data_is_serves_where_it_is_not(
    place: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is copied to the machine with the GPU to build TensorRT's plan there."""
    monkeypatch.setitem(certificates.DSC, "int8", 0.0)
    run = copy_of(short, "to-the-gpu")
    assert mona(place, "export", run, "--precision", "int8").code == 0
    before = (run / "model-int8.onnx").read_bytes()
    facts = json.loads((run / "resolved.json").read_text())
    (run / "resolved.json").write_text(json.dumps({**facts, "cache": "/nowhere/cache/hearts-32x32"}))
    done = mona(place, "export", run, "--precision", "int8")
    assert done.code == 0 and "is kept" in done.out, done
    assert (run / "model-int8.onnx").read_bytes() == before


# ---- resume


def test_a_run_goes_on_from_another_folder(place: Path, short: Path, tmp_path: Path) -> None:
    run = copy_of(short, "elsewhere")
    done = mona(tmp_path, "train", "--resume", run)
    assert done.code == 0, done.err
    assert not list(tmp_path.iterdir())  # no second cache
    assert (run / "resolved.json").read_bytes() == (short / "resolved.json").read_bytes()


def test_a_run_goes_on_where_its_data_has_moved(place: Path, short: Path, tmp_path: Path) -> None:
    run = copy_of(short, "moved")
    facts = json.loads((run / "resolved.json").read_text())
    (run / "resolved.json").write_text(json.dumps({**facts, "data": "/nowhere/hearts", "cache": "/nowhere/c/h"}))
    refused(mona(tmp_path, "train", "--resume", run), "/nowhere/hearts does not exist", "--data FOLDER")
    shutil.copytree(place / "hearts", tmp_path / "now")
    done = mona(tmp_path, "train", "--resume", run, "--data", "now")
    assert done.code == 0, done.err
    found = read_resolved(run)
    assert found is not None and (found.data, found.cache) == (tmp_path / "now", tmp_path / "cache/now-32x32")
    checkpoint_ = "checkpoints/last.safetensors"
    assert (run / checkpoint_).read_bytes() == (short / checkpoint_).read_bytes()


def test_a_run_does_not_go_on_with_other_data(place: Path, short: Path, tmp_path: Path) -> None:
    run = copy_of(short, "other-data")
    shutil.copytree(place / "hearts", tmp_path / "now")
    shutil.copy(tmp_path / "now/labelsTr/heart0.nii.gz", tmp_path / "now/labelsTr/heart1.nii.gz")
    facts = json.loads((run / "resolved.json").read_text())
    (run / "resolved.json").write_text(json.dumps({**facts, "cache": "/nowhere/c/h"}))
    refused(mona(tmp_path, "train", "--resume", run, "--data", "now"), "is not what", "have changed")


def test_a_run_of_an_older_version_goes_on_or_is_told_how(place: Path, short: Path, tmp_path: Path) -> None:
    run = copy_of(short, "older")
    (run / "resolved.json").unlink()
    refused(mona(tmp_path, "train", "--resume", run), "--data FOLDER")
    refused(mona(tmp_path, "export", run, "--precision", "int8"), "training slices", "--data FOLDER")
    assert mona(place, "train", "--resume", run).code == 0
    assert (run / "resolved.json").read_bytes() == (short / "resolved.json").read_bytes()


@pytest.mark.parametrize(
    "words",
    [["--steps", "8"], ["--set", "optimiser.lr=1"], ["--seed", "1"], ["--out", "x"], ["--dataset", "hearts"]],
    ids=lambda words: words[0],
)
def test_what_cannot_change_on_a_resume_is_refused_not_ignored(words: list[str], place: Path, short: Path) -> None:
    refused(mona(place, "train", "--resume", short, *words), words[0], "start a new run")


def test_a_split_cannot_change_in_the_middle_of_a_run(place: Path, short: Path) -> None:
    run = copy_of(short, "edited")
    (run / "run.toml").write_text((run / "run.toml").read_text().replace("ratio = 0.4", "ratio = 0.6"))
    refused(mona(place, "train", "--resume", run), "ratio = 0.6", "started with 0.4")


def test_a_damaged_resolved_json_is_one_sentence(place: Path, short: Path) -> None:
    run = copy_of(short, "damaged")
    for text in ("{", "[]", '{"format": 1}', '{"format": 9}'):
        (run / "resolved.json").write_text(text)
        refused(mona(place, "train", "--resume", run), "resolved.json")
        refused(mona(place, "export", run), "resolved.json")


def _training(process: subprocess.Popen[str], run: Path) -> None:
    while process.poll() is None and not (run / "metrics.jsonl").exists():
        time.sleep(0.01)


def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(place: Path) -> None:
    run = place / "runs/locked"
    first = start(place, *RUN, "--out", run, "--set", "every.save=1")
    _training(first, run)
    first.send_signal(signal.SIGSTOP)  # it must not end while the second one looks
    try:
        assert first.poll() is None
        refused(mona(place, "train", "--resume", run), "another process is training")
        refused(mona(place, *RUN, "--out", run), "already contains a run")
        assert f"process {first.pid} on " in mona(place, "train", "--resume", run).err
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    done = mona(place, "train", "--resume", run)
    assert done.code == 0, done.err
    assert not list(run.glob("*.lock"))


# ---- divergence


def test_a_run_that_diverges_stops_in_words_and_keeps_its_last_good_checkpoint(place: Path, short: Path) -> None:
    run = copy_of(short, "diverging")
    for name in ("results.json", "parity.npz"):
        (run / name).unlink()
    config = (run / "run.toml").read_text()
    assert mona(place, *SHORT, "--set", "every.validate=2", "--out", "runs/half").code == 0
    # as if somebody raised the learning rate of a run that had been stopped after two steps
    tensors, facts = checkpoint.load(place / "runs/half/checkpoints/last.safetensors")
    checkpoint.save(run / "checkpoints/last.safetensors", tensors, {**facts, "step": 2, "best": None, "metrics": 0})
    good = (run / "checkpoints/last.safetensors").read_bytes()
    (run / "run.toml").write_text(config.replace("lr = 0.01", "lr = 1e30"))
    assert read_config(run).optimiser.lr == 1e30
    done = mona(place, "train", "--resume", run)
    assert done.code == 1 and "Traceback" not in done.err, done
    assert "training diverged at step 3: " in done.err.splitlines()[-1]
    assert "the checkpoint of step 2 is kept" in done.err and f"mona train --resume {run}" in done.err
    assert (run / "checkpoints/last.safetensors").read_bytes() == good
    assert not (run / "results.json").exists() and "diverged" in (run / "log.txt").read_text()


def test_a_loss_that_is_not_finite_is_named_and_never_logged(place: Path) -> None:
    done = mona(place, *RUN, "--set", "optimiser.lr=1e30", "--set", "every.log=5", "--out", "runs/nan")
    assert done.code == 1, done
    assert "training diverged at step 2: the loss 'supervised' is nan; nothing was saved" in done.err
    assert list(read(place / "runs/nan/metrics.jsonl")) == []
    assert not (place / "runs/nan/checkpoints").exists()


# ---- tracebacks


def test_profile_of_a_run_with_few_steps(place: Path) -> None:
    done = mona(place, *RUN, "--steps", "4", "--profile")
    assert done.code == 0 and "whole step" in done.out, done.err


@pytest.mark.parametrize("width", ["1e9", "-1", "0", "inf", "nan"])
def test_a_width_that_cannot_be_is_refused(width: str, place: Path, short: Path) -> None:
    run = copy_of(short, f"width{width}")
    text = (run / "run.toml").read_text()
    (run / "run.toml").write_text(text.replace("width = 0.25", f"width = {width}"))
    refused(mona(place, "train", "--resume", run), "width")
    refused(mona(place, *SHORT, "--set", f"width={width}", "--out", "runs/no"), "width")
    assert not (place / "runs/no").exists()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_too_little_memory_is_one_sentence(error: Exception, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr("mona_train.engine.session.Session.__init__", full)
    words = "not enough memory for width 0.25 and 2+6 slices of "
    refused(mona(place, *SHORT, "--out", "runs/no"), f"{words}32x32 per step; lower width, size or batch")
    fitted = ["--preset", "quick", *setting({"width": "0.25", "batch.labelled": "2"})]
    refused(mona(place, *DATA, "--ratio", "0.4", *fitted), "2+4 slices of 192 pixels per step; lower width, pixels or")


NONSENSE = [
    "optimiser.warmup=2",
    "optimiser.power=-1",
    "optimiser.momentum=1",
    "size=0x0",
    "size=8192x16",
    "acr.sure=2",
]
NONSENSE += ["acr.temperature=0", "acr.contrast_weight=-1", "glcon.bank=0", "glcon.windows=0"]
NONSENSE += ["glcon.jitter=-1", "glcon.student_temperature=0", "optimiser.lr=inf", "batch.labelled=0", "ema=2"]


@pytest.mark.parametrize("setting", NONSENSE)
def test_settings_that_make_no_sense_are_refused(setting: str, place: Path) -> None:
    refused(mona(place, *RUN, "--set", setting, "--out", "runs/no"), setting.partition("=")[0].rpartition(".")[2])
    assert not (place / "runs/no").exists()


@pytest.mark.parametrize(
    ("words", "works"),
    [(["batch.unlabelled=1"], False), (["batch.unlabelled=2"], True)],
    ids=["one slice", "two slices"],
)
def test_a_window_of_one_pixel_at_the_deepest_level(words: list[str], works: bool, place: Path) -> None:
    batch = ["batch.labelled=1", "window=16x16", *words]
    done = mona(place, *RUN, "--steps", "2", *(w for b in batch for w in ("--set", b)), "--out", f"runs/w{works}")
    if works:
        assert done.code == 0, done.err
    else:
        refused(done, "batch norm", "batch.unlabelled")
