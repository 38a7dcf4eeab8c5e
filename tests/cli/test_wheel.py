"""A wheel holds every file of the packages (the published splits too) and nothing that only developers need."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_the_wheel_is_complete(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("mona_kernels", "mona_infer", "mona_train")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".txt", ".html", ".css", ".js") and "csrc" not in path.parts
    }
    assert not expected - packed
    for module in ("_native", "_training"):
        assert any(name.startswith(f"mona_kernels/{module}.") and name.endswith((".so", ".pyd")) for name in packed)
    assert not [name for name in packed if "csrc" in name or name.startswith(("tests", "tools"))]
