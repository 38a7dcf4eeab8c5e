"""metrics.jsonl: one JSON object a line, one line a record, in the order of steps.

It has no clock in it: a run that was killed and resumed leaves the same file as one that never was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mona_infer.errors import InputError
from mona_infer.io.atomic import sync_folder, writing


class MetricsLog:
    """Appends to a file; to none where the path is None (processes other than the first)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")

    def write(self, step: int, **values: Any) -> None:
        """Floats are written so that they read back exactly; what is not finite as NaN and Infinity."""
        if self._file is not None and self._path is not None:
            with writing(self._path):
                self._file.write(json.dumps({"step": step, **values}).encode() + b"\n")
                self._file.flush()

    def position(self) -> int:
        """Bytes that are safely on the disk: what a checkpoint remembers."""
        if self._file is None or self._path is None:
            return 0
        with writing(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            sync_folder(self._path.parent)  # its name, too: a checkpoint without its metrics cannot be resumed
            return os.fstat(self._file.fileno()).st_size

    def truncate(self, position: int) -> None:
        """Forget what was written after the checkpoint that remembers `position`: lines, or half a line."""
        if self._file is None or self._path is None:
            return
        with self._path.open("rb") as file:
            file.seek(max(0, position - 1))
            before = file.read(1)
        if position and before != b"\n":
            size = self._path.stat().st_size
            raise InputError(
                f"{self._path}: expected a line to end at byte {position}, where the checkpoint was taken, "
                f"found {'another text' if before else f'{size} bytes in all'}; put back the file that belongs to it"
            )
        self._file.truncate(position)

    def close(self) -> None:
        if self._file is not None and self._path is not None:
            with writing(self._path):
                self._file.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, which may still be growing or end in half a line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise InputError(f"{path}, line {number}: expected a JSON object ({error})") from error
            yield record
