"""The real `mona segment` in a subprocess: no torch, exit codes for damage, and kills at any moment."""

import os
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import damaged, hostile_models, models

MONA = Path(sys.executable).with_name("mona")
AFFINE = np.diag([1.5, 1.5, 8.0, 1.0])
KILLS, CASES = 3, 12  # 20 in `make test-all`
IN_PROCESS = """
import sys
from pathlib import Path
from helpers import damaged
from mona_infer.cli.main import app
from mona_infer.errors import MonaError

what, folder, good, count = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
for number in range(count):
    inside = folder / str(number)
    inside.mkdir()
    if what == "scans":
        kind, scan, model = damaged.KINDS[number % len(damaged.KINDS)], damaged.make(number, inside), good
    else:
        from helpers import hostile_models
        kind, scan = hostile_models.KINDS[number % len(hostile_models.KINDS)], good
        model = inside / "model.onnx"
        model.write_bytes(hostile_models.make(number))
    before = sorted(inside.rglob("*"))
    command = ["segment", str(scan), "--out", str(inside / "m.nii.gz"), "--model", str(model)]
    try:
        app(command, standalone_mode=False)
    except MonaError as error:
        assert error.exit_code == 2, (number, kind, error)
        assert chr(10) not in str(error) and len(str(error)) < 600, (number, kind, error)
        assert sorted(inside.rglob("*")) == before, (number, kind)
    else:
        # as label maps these are odd; as scans they are sound
        assert kind in (damaged.odd_values, damaged.odd_shape, damaged.flipped_header), (number, kind)
        assert (inside / "m.nii.gz").exists()
assert not {"torch", "mona_train", *(["onnx"] if what == "scans" else [])} & set(sys.modules)
"""


def mona(*args, cwd=None):
    return subprocess.run([MONA, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.write(tmp_path_factory.mktemp("model") / "model.onnx")


def scans(folder, count):
    folder.mkdir()
    for n in range(count):
        nib.save(nib.Nifti1Image(models.scan(n, (24, 24, 8)), AFFINE), folder / f"case{n}.nii.gz")


def test_from_scan_to_scores_as_two_commands(model, tmp_path):
    scans(tmp_path / "scans", 2)
    done = mona("segment", "scans", "--out", "masks", "--model", model, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "wrote masks"
    done = mona("evaluate", "masks", "masks", cwd=tmp_path)
    assert done.returncode == 0


def test_there_and_back_on_an_nnunet_data_set(model, tmp_path):
    scans(tmp_path / "imagesTr", 2)
    for path in (tmp_path / "imagesTr").iterdir():
        path.rename(path.with_name(path.name.replace(".nii.gz", "_0000.nii.gz")))
    (tmp_path / "labelsTr").mkdir()
    for n in range(2):
        label = np.minimum(models.scan(n, (24, 24, 8)) // 250, 3).astype(np.uint8)
        nib.save(nib.Nifti1Image(label, AFFINE), tmp_path / "labelsTr" / f"case{n}.nii.gz")
    command = ["segment", "imagesTr", "--out", "masks", "--reference", "labelsTr", "--model", model]
    done = mona(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("(DSC ") == 2 * 3
    done = mona("evaluate", "masks", "labelsTr", "--csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1::3]] == ["case0", "case1"]
    done = mona("segment", "imagesTr", "--out", "mask.nii.gz", "--model", model, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("mona: imagesTr is a folder of 2 scans but mask.nii.gz names a single mask; ")


def test_a_bad_case_is_exit_code_1_and_a_missing_engine_3(model, tmp_path):
    scans(tmp_path / "scans", 1)
    (tmp_path / "scans" / "bad.nii").write_bytes(b"no scan")
    done = mona("segment", "scans", "--out", "masks", "--model", model, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "mona: 1 of 2 cases failed (bad); the others are done"
    for scan, out in (("scans/case0.nii.gz", "m.nii"), ("scans", "more")):
        done = mona("segment", scan, "--out", out, "--model", model, "--engine", "tensorrt", cwd=tmp_path)
        assert done.returncode == 3
        assert "pip install" in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / out).exists()


def test_a_folder_is_done_to_its_end_though_nobody_reads_what_is_printed(model, tmp_path):
    scans(tmp_path / "scans", 3)
    read, write = os.pipe()
    os.close(read)
    command = [MONA, "segment", "scans", "--out", "masks", "--model", model]
    done = subprocess.run(command, stdout=write, stderr=write, cwd=tmp_path, check=False)
    os.close(write)
    assert done.returncode == 0
    assert len(list((tmp_path / "masks").iterdir())) == 3


@pytest.mark.parametrize(
    "args",
    [
        ["--out", "file/m.nii.gz"],
        ["--out", "m.nii.gz", "--preview", "file/p.png"],
        ["--out", "m.nii.gz", "--stats", "file/s.json"],
        ["--out", "m.nii.gz", "--json", "file/s.json"],
        ["--out", "m.nii.gz", "--probabilities", "file/maps"],
        ["--out", "m.nii.gz", "--probabilities", "file"],
        ["--out", "file"],
        ["--out", "file/masks"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_told_once_before_the_network_starts(args, model, tmp_path):
    scans(tmp_path / "scans", 3)
    (tmp_path / "file").write_text("not a folder")
    before = sorted(tmp_path.rglob("*"))
    scan = "scans" if args[1].startswith("file") and not args[1].endswith(".nii.gz") else "scans/case0.nii.gz"
    done = mona("segment", scan, *args, "--model", model, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr in (
        f"mona: {args[-1]} cannot be written: Not a directory\n",
        f"mona: {args[-1]} is a file; give the name of a folder\n",
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_changed_by_one_bit_is_refused(model, tmp_path):
    scans(tmp_path / "scans", 1)
    content = bytearray(model.read_bytes())
    content[content.index(b"weight") + 200] ^= 1
    (tmp_path / "model.onnx").write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    done = mona("segment", "scans", "--out", "masks", "--model", "model.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("mona: model.onnx is damaged or was changed")
    assert done.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("scans", len(damaged.KINDS)),
        ("models", len(hostile_models.KINDS)),
        pytest.param("scans", 200, marks=pytest.mark.full),
        pytest.param("models", 200, marks=pytest.mark.full),
    ],
)
def test_damage_is_refused_and_leaves_nothing(what, count, model, tmp_path):
    """In one process, which also shows that none of it needs torch and that no file takes the process down."""
    scans(tmp_path / "scans", 1)
    good = model if what == "scans" else tmp_path / "scans" / "case0.nii.gz"
    command = [sys.executable, "-c", IN_PROCESS, what, tmp_path, good, str(count)]
    paths = os.pathsep.join([str(Path(damaged.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kills", [KILLS, pytest.param(20, marks=pytest.mark.full)])
def test_killed_at_any_moment_there_is_no_half_mask(kills, model, tmp_path):
    scans(tmp_path / "scans", CASES)
    command = [MONA, "segment", "scans", "--out", "masks", "--model", model]
    rng = np.random.default_rng(0)
    masks, done = tmp_path / "masks", 0
    for _ in range(kills):
        child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = done + int(rng.integers(0, 3))
        while child.poll() is None and len(list(masks.glob("case*"))) < min(wanted, CASES):
            time.sleep(0.005)
        time.sleep(float(rng.random()) * 0.05)
        child.kill()
        child.wait()
        for path in masks.glob("case*"):
            assert np.asarray(nib.load(path).dataobj).shape == (24, 24, 8)  # whole: reading to the end checks the CRC
        done = len(list(masks.glob("case*")))
    finished = mona(*command[1:], cwd=tmp_path)
    assert finished.returncode == 0
    assert f"{CASES - done} segmented, {done} had a mask already, 0 failed" in finished.stdout
    assert len(list(masks.glob("case*"))) == CASES


def test_nothing_is_left_in_the_home_folder(model, tmp_path):
    """ONNX Runtime's wheels keep a device id and a queue of usage reports there unless they are told not to."""
    scans(tmp_path / "scans", 1)
    home = tmp_path / "home"
    home.mkdir()
    command = [MONA, "segment", tmp_path / "scans", "--out", tmp_path / "masks", "--model", model]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ORT_", "XDG_"))} | {"HOME": str(home)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert not list(home.rglob("*"))
