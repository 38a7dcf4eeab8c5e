"""The Triton kernels without a GPU: the cases of `on_triton/`, in Triton's interpreter.

In processes of their own: whether `triton.jit` compiles or interprets is decided once, when triton is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "on_triton"


EVERY_DAY = [(path.stem, "not full") for path in sorted(CASES.glob("*.py"))]


@pytest.mark.parametrize(("op", "chosen"), [*EVERY_DAY, pytest.param("sampling", "full", marks=pytest.mark.full)])
def test_as_the_reference(op: str, chosen: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", chosen]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([*command, CASES / f"{op}.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
