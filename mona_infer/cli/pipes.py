"""Output that nobody reads any more: `mona segment scans --out masks | head -1` still makes every mask.

Else the first line after the reader has gone would end the command half-way, and typer and rich end it with code 1.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO


class _Patient(io.FileIO):
    """A file to which one may go on writing after its reader has gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def outlive_readers() -> None:
    """Let standard output and standard error go on without their readers."""
    sys.stdout, sys.stderr = _patient(sys.stdout), _patient(sys.stderr)


def _patient(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # none, or another program's: a test's, a notebook's
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Patient(stream.fileno(), "wb", closefd=False)),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
