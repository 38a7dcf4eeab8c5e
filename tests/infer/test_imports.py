"""Imports point one way: mona_train -> mona_infer -> mona_kernels; and inference never needs torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "mona_kernels": {"mona_kernels"},
    "mona_infer": {"mona_infer", "mona_kernels"},
    "mona_train": {"mona_train", "mona_infer", "mona_kernels"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        ours = {name for name in imports(path) if name.startswith("mona_")}
        assert ours <= ALLOWED[package], path
        if package == "mona_infer" and path.name != "doctor.py":  # doctor asks torch for devices, if it is there
            assert "torch" not in set(imports(path)), path


def test_importing_all_of_mona_infer_imports_no_torch():
    files = (p for p in (ROOT / "mona_infer").rglob("*.py") if p.stem != "__init__")
    modules = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files]
    assert len(modules) > 30 and any(m.count(".") == 3 for m in modules)  # the rooms inside rooms too
    code = f"import sys, importlib\nfor m in {[*modules, 'mona_kernels.native']}: importlib.import_module(m)\n"
    code += "print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'triton', 'mona_train')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
