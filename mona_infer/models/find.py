"""Which model `mona segment` takes: the one named, else $MONA_MODEL, else the newest export under runs/."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mona_infer.errors import InputError

NAMES = "model*.onnx"  # model.onnx, model-fp16.onnx, model-int8.onnx


def find_model(named: Path | None = None, runs: Path = Path("runs")) -> Path:
    if named is not None:
        return _inside(named, "--model")
    variable = os.environ.get("MONA_MODEL")
    if variable:
        return _inside(Path(variable), "$MONA_MODEL")
    found = _newest(runs.glob(f"*/{NAMES}"))
    if found is None:
        raise InputError(
            f"there is no model: none under {runs}, $MONA_MODEL is not set; name one with --model FILE, "
            "or make one with `mona train` and `mona export`"
        )
    return found


def _inside(path: Path, origin: str) -> Path:
    """A file as it is; of a run's folder the newest model in it."""
    if path.is_file():
        return path
    found = _newest(path.glob(NAMES)) if path.is_dir() else None
    if found is None:
        words = "holds no model; make one with `mona export`" if path.is_dir() else "does not exist"
        raise InputError(f"{path} (of {origin}) {words}")
    return found


def _newest(paths: Iterable[Path]) -> Path | None:
    files = [p for p in paths if p.is_file()]
    return max(files, key=lambda p: (p.stat().st_mtime_ns, str(p)), default=None)
