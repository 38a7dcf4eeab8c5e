"""One process trains in a run's folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from mona_infer.system.lock import hold

LOCK = "train.lock"


def only_one(folder: Path) -> AbstractContextManager[None]:
    """Refuses if another process trains there."""
    return hold(folder / LOCK, f"training in {folder}")
