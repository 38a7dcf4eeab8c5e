"""One process trains in a run's folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from mona_infer.system import lock

LOCK, TRAINING = "train.lock", "training"


def only_one(folder: Path, name: str = LOCK, doing: str = TRAINING) -> AbstractContextManager[None]:
    """Refuses if another process is at work there."""
    return lock.only_one(folder, name, doing)


def is_held(folder: Path, name: str = LOCK) -> bool:
    """Whether a process works in this folder now."""
    return lock.is_held(folder, name)
