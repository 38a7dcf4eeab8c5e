"""Which model `mona segment` uses: --model, $MONA_MODEL, the newest export under runs/, or a bundled one.

Where bundled models are for several kinds of scan, `mona_infer.models.fitting` finds the one for a scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from mona_infer.errors import InputError
from mona_infer.models.bundled import best, best_of_each, bundled, path_of

NAMES = "model*.onnx"  # model.onnx, model-fp16.onnx, model-int8.onnx


def find_model(given: Path | str | None = None, runs: Path = Path("runs")) -> Path:
    """A file, a run's folder or the name of a bundled model; where nothing is given, the first that there is."""
    return chosen_model(given, runs) or _name_one()


def chosen_model(given: Path | str | None = None, runs: Path = Path("runs")) -> Path | None:
    """As `find_model`; None where only the scan can tell which bundled model it is for."""
    if given is not None:
        return named_model(given, "--model")
    variable = os.environ.get("MONA_MODEL")
    if variable:
        return named_model(variable, "$MONA_MODEL")
    found = _newest(runs.glob(f"*/{NAMES}")) or best()
    if found is None and not bundled():
        raise InputError(
            f"no model found: none under {runs}, $MONA_MODEL is not set and none came with mona; give one with --model "
            "FILE, or make one with `mona train` and `mona export`"
        )
    return found


def named_model(given: Path | str, origin: str = "") -> Path:
    """A file as it is; for a run's folder, the newest model in it; for a name, the bundled model of that name.

    What lies on the disk under that name goes first: a run may be called like a bundled model.
    """
    path, source = Path(given), f" (from {origin})" if origin else ""
    if path.is_file():
        return path
    newest = _newest(path.glob(NAMES)) if path.is_dir() else None
    found = newest or path_of(str(given))
    if found is None:
        known = ", ".join(card.name for card in bundled())
        problem = "contains no model; make one with `mona export`" if path.is_dir() else "does not exist"
        raise InputError(f"{path}{source} {problem}" + (f"; models that come with mona: {known}" if known else ""))
    return found


def bundled_or(given: Path | str | None) -> Path:
    """As `named_model`; the best bundled model where nothing is given, whatever lies in the working folder."""
    if given is not None:
        return named_model(given)
    if not bundled():
        raise InputError("this installation of mona has no model; give the file of one that `mona export` made")
    return best() or _name_one()


def _name_one() -> NoReturn:
    known = ", ".join(f"{card.name} for {card.scans.name}" for card in best_of_each())
    raise InputError(f"models for several kinds of scan come with mona ({known}); choose one by name")


def _newest(paths: Iterable[Path]) -> Path | None:
    files = [p for p in paths if p.is_file()]
    return max(files, key=lambda p: (p.stat().st_mtime_ns, str(p)), default=None)
