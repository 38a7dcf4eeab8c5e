"""One process trains in a run's folder, or runs the rows of a bench."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from mona_infer.system.lock import held, hold

LOCK, TRAINING = "train.lock", "training"


def only_one(folder: Path, name: str = LOCK, doing: str = TRAINING) -> AbstractContextManager[None]:
    """Refuses if another process works there."""
    return hold(folder / name, f"{doing} in {folder}")


def is_held(folder: Path, name: str = LOCK) -> bool:
    """Whether a process works in this folder now."""
    return held(folder / name)
