"""A wheel holds every file of the packages (splits and models too), both licences, and nothing for developers alone."""

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
    archive = zipfile.ZipFile(wheel)
    packed = set(archive.namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("mona_kernels", "mona_infer", "mona_train")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".txt", ".md", ".onnx", ".html", ".css", ".js")
        and "csrc" not in path.parts
    }
    assert not expected - packed
    for module in ("_native", "_training"):
        assert any(name.startswith(f"mona_kernels/{module}.") and name.endswith((".so", ".pyd")) for name in packed)
    assert not [name for name in packed if "csrc" in name or name.startswith(("tests", "tools"))]
    (metadata,) = (archive.read(name).decode() for name in packed if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: Apache-2.0 AND CC-BY-NC-SA-4.0\n" in metadata
    for licence in ("LICENSE", "mona_infer/models/bundled/LICENCE.md"):
        assert f"License-File: {licence}\n" in metadata
        assert any(name.endswith(f".dist-info/licenses/{licence}") for name in packed)
    assert wheel.stat().st_size < 12_000_000, "two models of less than 4 MB, and the code"
