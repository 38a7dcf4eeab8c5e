"""The server's own folder: uploaded scans, jobs, predictions.  Every name in it was made by the server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mona_infer.io.atomic import TEMPORARY, write_text
from mona_infer.system.lock import only_one

LOCK = "serve.lock"
ID = re.compile(r"[0-9a-f]{16}")


def default_state(dataset: Path | None, runs: Path = Path("runs")) -> Path:
    """One folder for each data set, beside the runs; its name tells people which, and its hash keeps it apart."""
    if dataset is None:
        return runs / ".serve" / "scans"
    digest = hashlib.sha256(str(dataset.resolve()).encode()).hexdigest()[:8]
    plain = re.sub(r"[^\w.-]+", "_", dataset.resolve().name)
    return runs / ".serve" / f"{plain}-{digest}"


def new_id() -> str:
    return secrets.token_hex(8)


class State:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scans, self.jobs, self.predictions = (folder / name for name in ("scans", "jobs", "predictions"))
        self.incoming, self.thumbnails = folder / "incoming", folder / "thumbnails"

    @contextlib.contextmanager
    def only_here(self) -> Iterator[None]:
        """One server in a state folder; what a killed one had half received is thrown away."""
        with only_one(self.folder, LOCK, "serving"):
            shutil.rmtree(self.incoming, ignore_errors=True)
            for place in (self.scans, self.jobs, self.predictions, self.incoming, self.thumbnails):
                place.mkdir(parents=True, exist_ok=True)
            for path in self.folder.rglob(".*"):
                if TEMPORARY.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            self.folder.chmod(0o700)  # scans of patients: nobody else on this machine needs to read them
            yield

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Path]:
        """A new folder for what is being received; removed unless it was moved to its place."""
        place = self.incoming / new_id()
        place.mkdir(parents=True)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """None for a file that is absent or damaged: the server then does without what it says."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    write_text(path, json.dumps(value, allow_nan=False) + "\n")
