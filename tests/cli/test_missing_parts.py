"""Commands whose packages are not installed end with exit code 3 and the command that installs them."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.dataset_files import acdc_h5, nnunet

from mona_infer.system.optional_parts import install_command, requirements

MAIN = """
import sys
absent = sys.argv.pop(1).split(",")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from mona_infer.cli import main as cli
"""
TRAINING = ("torch", "lightning_fabric", "safetensors", "onnx", "onnxscript", "h5py", "scipy", "tensorboard", "triton")


def mona(place: Path, absent: str, *words: object, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{MAIN}{before}\ncli.main()"
    command = [sys.executable, "-c", code, absent, *map(str, words)]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def refused(done, *names):
    assert done.returncode == 3 and "Traceback" not in done.stderr, done.stderr
    said = done.stderr.splitlines()[-1]
    assert "-m pip install " in said
    for name in names:
        assert f'"{requirements("train")[name]}"' in said
    return said


@pytest.mark.parametrize(
    "absent, words",
    [
        ("torch", ["train", "--dataset", "phantom"]),
        ("torch", ["train", "--resume", "nothing"]),
        ("torch", ["demo"]),
        ("torch", ["export", "nothing"]),
        ("torch", ["bench", "acdc"]),
        ("lightning_fabric", ["train", "--dataset", "phantom", "--preset", "quick"]),
        ("lightning_fabric", ["demo"]),
        ("safetensors", ["train", "--dataset", "phantom"]),
        ("safetensors", ["demo"]),
        ("safetensors", ["export", "nothing"]),
        ("onnx", ["export", "nothing"]),
        ("onnxscript", ["export", "nothing"]),
    ],
)
def test_one_package_is_not_installed(tmp_path, absent, words):
    said = refused(mona(tmp_path, absent, *words), absent.replace("_", "-"))
    assert said.startswith(f"mona: `mona {words[0]}` needs {absent.replace('_', '-')}, which is not installed; run: ")
    assert not list(tmp_path.iterdir())  # nothing was begun


@pytest.mark.parametrize("words", [["train", "--dataset", "phantom"], ["demo"], ["export"]])
def test_nothing_of_training_is_installed_as_after_pip_install_cpu(tmp_path, words):
    """One command then brings all of it, so that the next one does not fail in turn."""
    refused(mona(tmp_path, ",".join(TRAINING), *words), *requirements("train"))
    assert mona(tmp_path, ",".join(TRAINING), words[0], "--help").returncode == 0


def test_data_sets_are_prepared_and_checked_without_torch(tmp_path):
    nnunet(tmp_path / "mine")
    for words in (["prepare", "mine"], ["info", "mine"], ["check", "mine"]):
        done = mona(tmp_path, ",".join(TRAINING), "data", *words)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache" / "mine-256").is_dir()


@pytest.mark.parametrize("command", ["check", "prepare", "info"])
def test_h5_files_without_h5py(tmp_path, command):
    acdc_h5(tmp_path / "acdc")
    refused(mona(tmp_path, "h5py", "data", command, "acdc", "acdc"), "h5py")
    assert not list(tmp_path.glob("cache/*/manifest.json"))


def test_a_package_found_missing_in_the_middle_of_a_command(tmp_path):
    said = refused(mona(tmp_path, "torch", "train", "--dataset", "phantom", before="cli.NEEDS.clear()"), "torch")
    assert said.startswith("mona: this needs torch, which is not installed; run: ")


def test_a_module_of_no_optional_part_is_a_bug_and_shows_itself(tmp_path):
    done = mona(tmp_path, "mona_train", "demo")
    assert done.returncode == 1 and "No module named 'mona_train" in done.stderr and "Traceback" in done.stderr


def test_the_command_names_the_python_that_runs_mona(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    if Path(sys.executable).with_name("python").exists():
        assert install_command("h5py>=3") == 'python -m pip install "h5py>=3"'
    monkeypatch.setenv("PATH", str(tmp_path))  # not activated: "python" would be another one, or none
    assert install_command("h5py>=3") == f'{sys.executable} -m pip install "h5py>=3"'


def test_what_is_for_one_system_only_says_so():
    assert requirements("train")["triton"].endswith("; sys_platform == 'linux'")
