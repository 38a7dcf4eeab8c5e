"""Training uses torch's OpenMP threads and no second set; inference uses none of either."""

import subprocess
import sys

import pytest

LOADED = "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'omp' in line.rpartition('/')[2]}, sep='\\n')"


def openmp_after(statement: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{statement}\n{LOADED}"], check=True, capture_output=True, text=True)
    return {*done.stdout.split("\n")} - {""}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_one_openmp_in_training_and_none_in_inference() -> None:
    of_torch = openmp_after("import torch")
    assert len(of_torch) == 1
    assert openmp_after("import mona_kernels.ops") == of_torch
    assert openmp_after("import mona_kernels.native, mona_infer.cli.segment") == set()
