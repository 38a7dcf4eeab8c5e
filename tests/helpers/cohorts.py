"""Cohorts that take a little time, scans that kill who reads them, and what is left behind afterwards."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np

from helpers import models
from helpers.launching import BIN

# Python imports a module of this name when it starts, so the programs under test need no hook of their own.  The one
# that the system has may say where packages lie, but not in the environments that tests run in.
HOOK = """
import os, signal, sys, time
def look(event, args):
    if event == "open" and isinstance(args[0], (str, os.PathLike)) and "scans/" in (name := os.fspath(args[0])):
        if name.endswith("poison.nii.gz"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.endswith(".nii.gz"):
            time.sleep({pause})
    if event == "import" and args[0] == "torch" and "spawn_main" in " ".join(sys.orig_argv):
        open({told!r}, "w").close()
sys.addaudithook(look)
"""
AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])


def cohort(folder: Path, count: int) -> Path:
    """A tiny model and so many tiny scans."""
    (folder / "scans").mkdir(parents=True)
    models.write(folder / "model.onnx")
    for n in range(count):
        nib.save(nib.Nifti1Image(models.scan(n), AFFINE), folder / "scans" / f"scan{n:03d}.nii.gz")
    return folder / "scans"


def hooked(folder: Path, pause: float) -> dict[str, str]:
    """An environment in which each scan takes `pause` seconds to open, and one named poison is deadly.

    A worker that imports torch leaves a file `torch` in `folder`.
    """
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK.format(pause=pause, told=str(folder / "torch")))
    return os.environ | {"PYTHONPATH": str(folder / "hook")}


def segment(folder: Path, out: str, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    words = [BIN / "mona", "segment", "scans", "--out", out, "--model", "model.onnx", *options]
    return subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def files(folder: Path) -> dict[str, str]:
    """Everything below a folder, also what a killed process left, by the hash of its bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
