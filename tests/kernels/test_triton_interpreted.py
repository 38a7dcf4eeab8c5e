"""The Triton kernels without a GPU: the cases of `on_triton/`, in Triton's interpreter.

In processes of their own: whether `triton.jit` compiles or interprets is decided once, when triton is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "on_triton"


@pytest.mark.parametrize("op", sorted(path.stem for path in CASES.glob("*.py")))
@pytest.mark.parametrize("size", ["", pytest.param("full", marks=pytest.mark.full)])
def test_as_the_reference(op: str, size: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", CASES / f"{op}.py"]
    done = subprocess.run(
        [*command, "-m", size or "not full"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    nothing_to_do = size and done.returncode == 5  # pytest: no tests collected
    assert done.returncode == 0 or nothing_to_do, done.stdout + done.stderr
