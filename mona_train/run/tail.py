"""How far a run is and what its process said last, read from outside while it goes on."""

from __future__ import annotations

import json
from pathlib import Path

TAIL = 4096  # bytes of a file that are enough for its last line


def last_step(run: Path) -> int:
    """About how many steps are done: the last record of its metrics."""
    for line in reversed(_tail(run / "metrics.jsonl")):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def last_words(log: Path) -> str:
    lines = [line.strip() for line in _tail(log) if line.strip()]
    return lines[-1].removeprefix("mona: ") if lines else "it said nothing"


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
