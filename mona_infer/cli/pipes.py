"""Keep running after the reader of a pipe has gone: `mona segment scans --out masks | head -1` still makes every mask.

Otherwise the first line printed after that would stop the command, and typer and rich would exit with code 1.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO


class _IgnoresBrokenPipe(io.FileIO):
    """A file that can still be written to after its reader has gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def ignore_broken_pipes() -> None:
    """Let standard output and standard error survive the loss of their readers."""
    sys.stdout, sys.stderr = _reopened(sys.stdout), _reopened(sys.stderr)


def _reopened(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # None, or replaced by a test or a notebook
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_IgnoresBrokenPipe(stream.fileno(), "wb", closefd=False)),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
