"""log.txt: what happened and when, for people."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from mona_infer.io.atomic import writing


class Log:
    """`log("text")` appends a line with the time; nowhere, where the path is None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __call__(self, text: str) -> None:
        if self._path is None:
            return
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        more = "\n" + " " * (len(now) + 2)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Opened for each line: lines are rare, and a process that is killed leaves nothing in a buffer.
        with writing(self._path), self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{now}  {more.join(text.splitlines())}\n")
