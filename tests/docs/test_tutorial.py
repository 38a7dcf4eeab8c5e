"""The tutorial and the notebook, on drawn hearts: every command is run and prints what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.doc_pages import ROOT, blocks, execute, run_console

TUTORIAL = ROOT / "docs/tutorial.md"
NOTEBOOK = ROOT / "docs/notebook.py"


def follow(folder: Path, replaced: dict[str, str]) -> None:
    execute(TUTORIAL)
    for block in blocks(TUTORIAL, "console"):
        run_console(block, folder, replaced)
    assert len(list((folder / "masks").glob("*.nii.gz"))) == len(list((folder / "references").glob("*.nii.gz"))) == 4
    assert (folder / "masks.png").stat().st_size > 10_000


def test_the_tutorial_with_a_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(tmp_path, {"--steps 600": "--steps 20"})


@pytest.mark.full
def test_the_tutorial_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(tmp_path, {})


def test_the_notebook_runs_as_a_script(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "STEPS": "20"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run([sys.executable, NOTEBOOK], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ejection fraction" in done.stdout
    assert (tmp_path / "hearts/overlay.png").stat().st_size > 1000


def test_the_notebook_is_one(tmp_path: Path) -> None:
    """Cells in the percent format: the file starts with one, and both kinds are there."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]") and text.count("\n# %%\n") >= 4
    jupytext = shutil.which("jupytext", path=str(Path(sys.executable).parent))
    if jupytext:
        subprocess.run([jupytext, "--to", "ipynb", "--output", tmp_path / "n.ipynb", NOTEBOOK], check=True)
        assert (tmp_path / "n.ipynb").stat().st_size > 1000
