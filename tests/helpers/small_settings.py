"""The settings of small runs as words of a command, and what is kept of a run: without importing torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

MONA = Path(sys.executable).with_name("mona")
# Banks of 36 rows fill within a stage's 8 steps of 2 + 6 slices.  Rings and windows are small for speed alone.
QUICK = {
    "acr.ring": "128",
    "acr.queries": "32",
    "acr.keys": "64",
    "acr.sure": "0.3",
    "acr.likely": "0.3",
    "glcon.windows": "2",
}
# Squeezed slices, both stages and all losses of the paper; tests/cli/test_first_look.py has the other presets.
SMALL = {"size": "32x32", "width": "0.25", "average": "true", "post_process": "true"}


class Done(NamedTuple):
    code: int
    out: str
    err: str


def setting(values: dict[str, str]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def kept(folder: Path) -> dict[str, bytes]:
    """Every file of a run but those that tell the time."""
    timed = ("log.txt", "machine.json")
    files = (p for p in folder.rglob("*") if p.is_file() and "tfevents" not in p.name and p.name not in timed)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}
