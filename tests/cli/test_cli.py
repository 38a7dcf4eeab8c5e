"""The real `mona` in a subprocess: speed of --help, exit codes, and what evaluate prints and writes."""

import csv
import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import typer

MONA = Path(sys.executable).with_name("mona")
ROOT = Path(__file__).parents[2]
AFFINE = np.diag([1.5, 1.5, 10.0, 1.0])


def mona(*args, cwd=None):
    return subprocess.run([MONA, *map(str, args)], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def folders(tmp_path):
    """Three cases of two classes; class 2 is missed in the last prediction."""
    rng = np.random.default_rng(0)
    for name in ("pred", "ref"):
        (tmp_path / name).mkdir()
    for n in range(3):
        reference = np.zeros((24, 20, 6), np.uint8)
        reference[4:14, 5:15, 1:5] = 1
        reference[14:20, 5:15, 1:5] = 2
        prediction = np.where(rng.random(reference.shape) < 0.05, 0, reference).astype(np.uint8)
        prediction[prediction == 2 if n == 2 else []] = 0
        nib.save(nib.Nifti1Image(reference, AFFINE), tmp_path / "ref" / f"case{n}.nii.gz")
        nib.save(nib.Nifti1Image(prediction, AFFINE), tmp_path / "pred" / f"case{n}.nii.gz")
    return tmp_path


@pytest.mark.parametrize("args", [["--help"], ["evaluate", "--help"]], ids=" ".join)
def test_help_is_quick(args):
    """The least processor time of 10 starts, which other tests on these cores cannot lengthen.

    The median waiting time on a quiet machine is in `make bench`.
    """
    times = []
    for _ in range(10):
        child = subprocess.Popen([MONA, *args], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        assert status == 0
        times.append(usage.ru_utime + usage.ru_stime)
    assert min(times) < 0.4


def test_help_imports_nothing_heavy():
    code = "import sys; sys.argv = ['mona', 'evaluate', '--help']\nfrom mona_infer.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: print(sorted({'numpy', 'nibabel', 'torch', 'pydicom'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_version():
    assert mona("--version").stdout.startswith("mona 0.")


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["nonsense"], "No such command"),
        (["evaluate"], "Missing argument"),
        (["evaluate", "a", "b", "--nope"], "--nope"),
        (["evaluate", "a.nii", "b.nii"], "does not exist"),
        (["evaluate", ".", ".", "--definition", "kind"], "sound or paper"),
        (["evaluate", ".", ".", "--classes", "RV"], "1=RV"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(args, word, tmp_path):
    done = mona(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_every_command_in_the_table_works():
    from mona_infer.cli.main import COMMANDS

    for name in COMMANDS:
        assert mona(name, "--help").returncode == 0


def test_evaluate_json_is_one_object(folders):
    report = json.loads(mona("evaluate", folders / "pred", folders / "ref", "--json").stdout)
    assert (report["definition"], report["unit"]) == ("sound", "mm")
    assert [case["case"] for case in report["cases"]] == ["case0", "case1", "case2"]
    scores = report["cases"][0]["classes"]["1"]
    assert {"dsc", "jaccard", "sensitivity", "precision", "nsd", "asd", "assd", "hd95", "hd"} <= set(scores)
    assert report["cases"][2]["classes"]["2"] == {
        "name": "2", "dsc": 0.0, "jaccard": 0.0, "sensitivity": 0.0, "precision": None, "nsd": 0.0,
        "asd": None, "assd": None, "hd95": None, "hd": None, "miss": True,
    }  # fmt: skip
    assert report["mean"]["classes"]["2"]["miss_rate"] == pytest.approx(1 / 3)
    assert report["mean"]["classes"]["2"]["assd"] > report["mean"]["classes"]["2"]["scored"]["assd"]
    low, high = report["mean"]["ci95"]["dsc"]
    assert low <= report["mean"]["dsc"] <= high
    assert any("miss" in words for words in report["rules"])


def test_evaluate_writes_files_and_names_them_last(folders):
    done = mona(
        "evaluate", "pred", "ref", "--json", "out/r.json", "--csv", "out/r.csv", "--definition", "paper", cwd=folders
    )
    assert done.returncode == 0
    assert done.stdout.rstrip().splitlines()[-1] == "wrote out/r.csv, out/r.json"
    assert json.loads((folders / "out" / "r.json").read_text())["unit"] == "voxel"
    rows = list(csv.DictReader(io.StringIO((folders / "out" / "r.csv").read_text())))
    assert len(rows) == 6
    assert rows[0]["spacing"] == "1.5x1.5x10"
    assert {row["definition"] for row in rows} == {"paper"}


def test_classes_are_named_in_csv_and_json(folders):
    args = "evaluate", "pred", "ref", "--classes", "1=right ventricle,2", "--tolerance", "1.5"
    rows = list(csv.DictReader(io.StringIO(mona(*args, "--csv", cwd=folders).stdout)))
    assert [(row["class"], row["name"]) for row in rows[:2]] == [("1", "right ventricle"), ("2", "2")]
    assert float(rows[0]["nsd"]) > 0.5
    assert rows[0]["tolerance"] == "1.5"
    report = json.loads(mona(*args, "--json", cwd=folders).stdout)
    assert report["cases"][0]["classes"]["1"]["name"] == "right ventricle"
    assert report["mean"]["classes"]["1"]["name"] == "right ventricle"
    assert report["tolerance"] == 1.5


def test_predictions_without_a_reference_are_counted_and_named(folders):
    for name in ("more", "extra"):
        (folders / "pred" / "case0.nii.gz").rename(folders / "pred" / f"{name}.nii.gz")
        (folders / "pred" / "case0.nii.gz").write_bytes((folders / "pred" / f"{name}.nii.gz").read_bytes())
    done = mona("evaluate", "pred", "ref", "--json", cwd=folders)
    assert done.returncode == 0
    assert done.stderr == "note: pred: 2 masks have no reference, not measured: extra, more\n"
    assert json.loads(done.stdout)["without_reference"] == ["extra", "more"]


def test_a_scan_given_as_a_mask_is_refused_in_words(folders):
    noise = np.random.default_rng(0).integers(0, 1000, (24, 20, 6)).astype(np.int16)
    nib.save(nib.Nifti1Image(noise, AFFINE), folders / "scan.nii.gz")
    mask = folders / "ref" / "case0.nii.gz"
    for pair in ((folders / "scan.nii.gz", mask), (mask, folders / "scan.nii.gz")):
        done = mona("evaluate", *pair)
        assert (done.returncode, done.stdout) == (2, "")
        assert "scan.nii.gz looks like a scan, not a mask" in done.stderr
    parcels = np.kron(np.arange(1, 1 + 6 * 5 * 3).reshape(6, 5, 3), np.ones((4, 4, 2))).astype(np.int16)  # 90 regions
    nib.save(nib.Nifti1Image(parcels, AFFINE), folders / "parcels.nii.gz")
    assert mona("evaluate", folders / "parcels.nii.gz", folders / "parcels.nii.gz").returncode == 0


@pytest.mark.parametrize("width", [40, 50, 60, 80, 140])
def test_tables_keep_their_numbers_at_any_width(folders, width, monkeypatch):
    """No number is cut or folded, no class is lost; what has no room is named."""
    monkeypatch.setenv("COLUMNS", str(width))
    done = mona("evaluate", folders / "pred", folders / "ref", "--classes", "1=right ventricle cavity,2=[Myo]")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    report = json.loads(mona("evaluate", folders / "pred", folders / "ref", "--json").stdout)
    (row,) = [line for line in lines if line.strip().startswith("case0")]
    scores = report["cases"][0]["classes"]["1"]
    assert f"{scores['dsc']:.3f}" in row.split()
    assert (f"{scores['hd']:.2f}" in row.split()) == (width == 140)
    assert ("Left out for lack of space" in done.stdout) == (width < 140)
    assert "…" not in done.stdout
    assert any("[Myo]" in line for line in lines)
    assert "class" in done.stdout


def test_evaluate_speaks_its_rules(folders):
    out = " ".join(mona("evaluate", folders / "pred", folders / "ref", "--classes", "1=RV,2=Myo").stdout.split())
    for words in ("Definition 'sound'", "millimetres", "1.5x1.5x10 mm", "DSC 0, no distance of its own", "miss", "RV"):
        assert words in out


def test_two_files_and_options_in_any_order(folders):
    pair = folders / "pred" / "case0.nii.gz", folders / "ref" / "case0.nii.gz"
    for args in ((*pair, "--json"), ("--json", *pair)):
        report = json.loads(mona("evaluate", *args).stdout)
        assert len(report["cases"]) == 1
        assert report["mean"]["ci95"] is None


def test_acdc_reference_names_and_other_storage_order_match(folders):
    path = folders / "ref" / "case0.nii.gz"
    image = nib.load(path).as_reoriented([[0, -1], [2, 1], [1, -1]])
    nib.save(image, folders / "ref" / "case0_gt.nii.gz")
    assert "are both references for the same case" in mona("evaluate", folders / "pred", folders / "ref").stderr
    path.unlink()
    report = json.loads(mona("evaluate", folders / "pred", folders / "ref", "--json").stdout)
    assert report["cases"][0]["classes"]["1"]["dsc"] > 0.9


@pytest.mark.parametrize("definition", ["sound", "paper"])
def test_a_class_that_is_nowhere_is_an_error_not_a_perfect_score(folders, definition):
    done = mona("evaluate", folders / "pred", folders / "ref", "--classes", "1,7", "--definition", definition)
    assert done.returncode == 2
    assert "class 7 of --classes is in neither predictions nor references" in done.stderr


def test_a_missing_prediction_is_an_error_not_a_smaller_mean(folders):
    (folders / "pred" / "case1.nii.gz").unlink()
    done = mona("evaluate", folders / "pred", folders / "ref")
    assert done.returncode == 2
    assert "no mask for 1 of 3 references (case1)" in done.stderr


@pytest.mark.parametrize(
    "command", ["segment", "evaluate", "train", "export", "label", "bench", "demo", "doctor", "data prepare"]
)
def test_help_shows_flags_as_flags_and_gives_examples_that_parse(command):
    import shlex

    from mona_infer.cli.examples import EXAMPLES
    from mona_infer.cli.main import app

    text = mona(*command.split(), "--help").stdout
    assert "<bool>" not in text
    for example in EXAMPLES.get(command, ()):
        assert example in text
        words = shlex.split(example.partition("|")[0])
        assert words[:2] == ["mona", command]
        group = typer.main.get_command(app)
        with group.make_context("mona", words[1:]) as parent:
            group.get_command(parent, command).make_context(command, words[2:], parent=parent)  # knows every option


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("mona ev", ["evaluate"]),
        ("mona segment --keep", ["--keep-largest", "--keep-names"]),
        ("mona evaluate --to", ["--tolerance"]),
        ("mona data pre", ["prepare"]),
        ("mona train --resume", ["--resume"]),
    ],
)
def test_the_shell_completes_commands_and_options(typed, expected):
    words = {"_MONA_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run([MONA], env=os.environ | words, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_completion_is_installed_into_the_home_folder(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        assert "_MONA_COMPLETE" in mona("--show-completion", shell).stdout
    env = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run([MONA, "--install-completion", "bash"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"wrote {tmp_path}")
    check = f"source {tmp_path}/.bashrc; complete -p mona"
    assert (
        "_mona_completion" in subprocess.run(["bash", "-c", check], capture_output=True, text=True, check=True).stdout
    )
    assert mona("--show-completion", "cmd").returncode == 2


COMMANDS_THAT_PRINT = ["evaluate pred ref", "evaluate pred ref --json", "doctor", "--help", "segment --help"]


@pytest.mark.parametrize("command", COMMANDS_THAT_PRINT)
def test_a_reader_that_goes_away_is_no_error(folders, command):
    """`| head -1` at its worst: the reader has gone before the first line."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([MONA, *command.split()], stdout=write, stderr=subprocess.PIPE, cwd=folders, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_doctor_tells_what_is_missing_and_how_to_get_it():
    done = mona("doctor", "--json")
    findings = {f["part"]: f for f in json.loads(done.stdout)["findings"]}
    assert findings["C++ kernels"]["state"] == "ok"
    for finding in findings.values():
        command = "mona train" if finding["part"] == "models" else "pip install"  # a clone without bundled models
        assert finding["state"] == "ok" or command in finding["remedy"]


def test_doctor_has_a_line_for_every_extra(monkeypatch):
    """An extra that is added to pyproject.toml alone fails here."""
    from mona_infer.cli import doctor
    from mona_infer.system.optional_parts import CORE, EXTRAS

    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(known) == {*CORE, *EXTRAS, "dev", "docs", "fuzz", "oracles"}
    monkeypatch.setattr(doctor, "version", lambda package: None if package == "uvicorn" else "1.2")
    found = {finding.part: finding for finding in doctor._extras()}
    assert set(found) == set(EXTRAS)
    assert found["serve"].state == "missing" and found["serve"].remedy.endswith('pip install "uvicorn>=0.30"')
    assert found["dicom-seg"].state == "ok" and "highdicom 1.2, to write masks" in found["dicom-seg"].detail


def test_doctor_calls_out_two_onnx_runtimes(monkeypatch):
    from mona_infer.cli import doctor

    monkeypatch.setattr(doctor, "version", lambda package: "1.30")
    found = doctor._onnx_runtime()[0]
    assert found.state == "broken"
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in found.remedy
