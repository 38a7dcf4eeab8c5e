"""What a GPU would be given compiles for all six architectures, and no register is spilled to memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "compile_kernels.py"
ARCHITECTURES = [80, 86, 89, 90, 100, 120]
KERNELS = {"_attract", "_count", "_divergence", "_divergence_backward", "_draw", "_draw_keys", "_gather"}
KERNELS |= {"_pull", "_push_down", "_reduce", "_repel", "_scatter", "_spread"}


def compiled(*options: str, path: str = "") -> tuple[int, dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(TOOL), "--json", "--workers", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**environment, "PYTHONPATH": path})
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def assert_sound(code: int, found: dict[str, Any]) -> None:
    assert code == 0, [r for r in found["reports"] if r["spills"]]
    assert {r["kernel"] for r in found["reports"]} == KERNELS
    assert all(r["spills"] == 0 < r["occupancy"] <= 1 and 0 < r["registers"] <= 255 for r in found["reports"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_compiles_without_spills(arch: int) -> None:
    assert_sound(*compiled("--arch", str(arch)))


def test_a_spill_is_seen_and_refused() -> None:
    code, found = compiled("--arch", "80", "--kernel", "_pull", "--registers", "40")
    assert code == 1 and found["reports"][0]["spills"] > 0 and found["reports"][0]["registers"] <= 40


def test_roofline_counts_by_hand() -> None:
    """Shared keys at the paper's scale: 4 x 256 queries and 4 x 512 keys of 512 numbers, method 9.4's 0.54 GFLOP."""
    code, (repel, *_) = compiled("--roofline", "--kernel", "_repel shared")
    assert code == 0
    assert repel["flops"] == 2 * 4 * 256 * 512 * 512
    assert repel["bytes"] == (4 * 256 * 512 + 4 * 512 * 512) * 4 + 4 * 512 * 8
    assert repel["microseconds"]["A100"] == pytest.approx(repel["flops"] / 19.5e12 * 1e6, abs=0.01)


@pytest.fixture(scope="module")
def older_triton(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The one that the CUDA build of torch 2.13.0 requires."""
    folder = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, "triton==3.7.1"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("triton 3.7.1 could not be installed")
    return folder


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("version", ["3.7.1", "installed"])
def test_every_configuration_compiles_without_spills(version: str, arch: int, older_triton: str) -> None:
    path = older_triton if version == "3.7.1" else ""
    code, found = compiled("--all", "--arch", str(arch), path=path)
    assert version in (found["triton"], "installed")
    assert_sound(code, found)
