"""results.jsonl: one JSON object a line for each finished row.  Lines are only ever appended.

Only one bench writes to a folder (its lock), and a line is on the disk before the next row is looked at.  Half a line
at the end, which a kill in the middle of a write leaves, is cut off by the next write; its row is collected again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError

FILE = "results.jsonl"
Line = dict[str, Any]


class Results:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = list(read_lines(path)[0].values())

    def find(self, table: str, row: str) -> Line | None:
        """The line of a row in a table."""
        return next((line for line in self.lines if line["row"] == row and line.get("table") == table), None)

    def elsewhere(self, row: str) -> Line | None:
        """The line of the same row in any table: one run may be a row of several."""
        return next((line for line in self.lines if line["row"] == row), None)

    def by_other_code(self, table: str, config: str, content: str) -> list[Line]:
        """Lines of a row with the same settings and data that other code measured, the latest last."""
        same = {"table": table, "config": config, "content": content}
        return [line for line in self.lines if all(line.get(key) == value for key, value in same.items())]

    def append(self, line: Line) -> None:
        """A row that is already there is not written twice."""
        if self.find(line["table"], line["row"]) is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        with self.path.open("a+b") as file:
            _repair(file)
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(json.loads(text))


def read_lines(path: Path) -> tuple[dict[int, Line], int | None]:
    """Each whole line by its number, and the number of a last one that a kill tore; none where there is no file yet."""
    try:
        *texts, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}, None
    torn = len(texts) + 1 if rest.strip() and not _is_line(rest) else None
    lines = {}
    for number, text in enumerate(texts if torn else [*texts, rest], 1):
        if text.strip():
            if not _is_line(text):
                raise InputError(
                    f"{path} line {number}: expected a JSON object with a row and a table; remove the line and run "
                    "`mona bench` again"
                )
            lines[number] = json.loads(text)
    return lines, torn


def _is_line(text: bytes) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("row"), str) and isinstance(found.get("table"), str)


def _repair(file: Any) -> None:
    """The file ends with a line break, or is empty; opened for appending, so that writes go to its end."""
    file.seek(0)
    content = file.read()
    start = content.rfind(b"\n") + 1
    if start == len(content):
        return
    if _is_line(content[start:]):  # whole, but for its line break
        file.write(b"\n")
    else:
        file.truncate(start)
