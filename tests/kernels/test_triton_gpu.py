"""For a machine with a CUDA device: the cases of `on_triton/` there, and the registered ops."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mona_kernels.ops import NATIVE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CASES = Path(__file__).parent / "on_triton"
TOOLS = Path(__file__).parents[2] / "tools"
NAMES = ["census", "draw_keys", "class_sums", "pyramid_gather", "equivariance"]
NAMES += [f"contrast, {mode}" for mode in ("shared", "exact", "expected")]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("bench_gpu")


@pytest.mark.parametrize("op", sorted(path.stem for path in CASES.glob("*.py")))
def test_as_the_reference(op: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", CASES / f"{op}.py"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_registered_op_is_the_reference_compiled_and_without_waiting(name: str, bench: Any) -> None:
    case = bench.cases("cuda", batch=2, size=96, classes=5, queries=50, keys=70, dim=100, ring=90)[name]
    bench.compare(case)
    eager = case(NATIVE)  # also tunes, which does wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        case(NATIVE)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for found, expected in zip(torch.compile(lambda: case(NATIVE))(), eager, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("name", NAMES)
def test_tensors_may_lie_on_another_than_the_current_device(name: str, bench: Any) -> None:
    bench.compare(bench.cases("cuda:1", batch=2, size=96, classes=5, queries=50, keys=70, dim=100, ring=90)[name])
