"""`pip install .[cpu]` into a new environment: segment and evaluate work there, and no torch comes with it."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import models

TOOL = Path(__file__).parents[2] / "tools" / "inference_env.py"


@pytest.mark.full
def test_an_environment_without_torch_segments_and_evaluates(tmp_path):
    model = models.write(tmp_path / "model.onnx")
    done = subprocess.run([sys.executable, TOOL, model, "--runs", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MB" in done.stdout
