"""Which model `mona segment` uses: --model, else $MONA_MODEL, else the newest export under runs/."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mona_infer.errors import InputError

NAMES = "model*.onnx"  # model.onnx, model-fp16.onnx, model-int8.onnx


def find_model(given: Path | None = None, runs: Path = Path("runs")) -> Path:
    if given is not None:
        return _inside(given, "--model")
    variable = os.environ.get("MONA_MODEL")
    if variable:
        return _inside(Path(variable), "$MONA_MODEL")
    newest = _newest(runs.glob(f"*/{NAMES}"))
    if newest is None:
        raise InputError(
            f"no model found: none under {runs}, and $MONA_MODEL is not set; give one with --model FILE, "
            "or make one with `mona train` and `mona export`"
        )
    return newest


def _inside(path: Path, origin: str) -> Path:
    """A file as it is; for a run's folder, the newest model in it."""
    if path.is_file():
        return path
    newest = _newest(path.glob(NAMES)) if path.is_dir() else None
    if newest is None:
        problem = "contains no model; make one with `mona export`" if path.is_dir() else "does not exist"
        raise InputError(f"{path} (from {origin}) {problem}")
    return newest


def _newest(paths: Iterable[Path]) -> Path | None:
    files = [p for p in paths if p.is_file()]
    return max(files, key=lambda p: (p.stat().st_mtime_ns, str(p)), default=None)
