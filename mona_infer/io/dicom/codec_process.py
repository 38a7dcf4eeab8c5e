"""Decoding compressed frames in a child process, with limits on time and memory.

Codecs are C and C++ that read whatever a file holds: a damaged JPEG-LS kept one busy for seconds, and a crash would
end the command and everything else that a server is doing.  In a child, both are an error that names the file.  The
child is a program of its own, not a fork, because a fork of a process with threads may hang.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError

CHILD = Path(__file__).with_name("codec_child.py")
START = 120.0  # seconds in which the codecs are loaded: 0.3 on an idle machine, 9 on one with ten programs too many
SECONDS, SECONDS_A_PIXEL = 20.0, 2e-6  # for a frame; 512 x 512 pixels of JPEG 2000 need 0.05
# Address space beyond the loaded codecs.  JPEG 2000 needs 32 bytes a pixel: whole numbers, two copies, and GDCM's text.
MEMORY, BYTES_A_PIXEL = 256 << 20, 64
DTYPE = re.compile(rb'\{"dtype": "[<>|=][iu]([124])"\}\n')  # of an answer with pixels
LINE = 4096  # of an answer, at most
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # each further one reserves address space


class _Ended(Exception):
    """How the child ended."""


class CodecProcess:
    """One child for all frames of a series; it starts with the first one, so other series pay nothing."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CodecProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def decode(
        self, code: bytes, syntax: str, options: dict[str, Any], shape: tuple[int, int], name: str
    ) -> NDArray[Any]:
        """The stored values (rows x columns) of one codestream; pydicom's decoder takes the `options`."""
        count = shape[0] * shape[1]
        seconds, memory = SECONDS + SECONDS_A_PIXEL * count, MEMORY + BYTES_A_PIXEL * count
        request = {"syntax": syntax, "length": len(code), "seconds": seconds, "memory": memory, "options": options}
        child = self._child or self._start()
        try:
            line, data = self._ask(child, json.dumps(request).encode() + b"\n" + code, seconds, count)
        except _Ended as end:
            raise InputError(
                f"{name}: decoding the pixels {end}; the file is damaged or malicious: copy or export it again"
            ) from None
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return np.frombuffer(data, answer["dtype"]).reshape(shape)

    def _start(self) -> subprocess.Popen[bytes]:
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],  # -P, because its folder has modules with very common names
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # GDCM and OpenJPEG print there
            env=os.environ | ONE_THREAD,
        )
        try:
            self._ask(self._child, b"", START)
        except _Ended as end:
            raise InputError(f"starting the decoder of compressed DICOM {end}; run `mona doctor`") from None
        return self._child

    def _ask(
        self, child: subprocess.Popen[bytes], request: bytes, seconds: float, count: int = 0
    ) -> tuple[bytes, bytes]:
        """The line with which the child answers, and `count` pixels unless it is an error."""
        assert child.stdin is not None and child.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        clock = threading.Timer(seconds, stop)  # a thread: a child that is frozen may block writing, too
        clock.daemon = True
        clock.start()
        try:
            with suppress(BrokenPipeError):  # how it ended is said below
                child.stdin.write(request)
                child.stdin.flush()
            line = child.stdout.readline(LINE)
            pixel = DTYPE.fullmatch(line)
            size = count * int(pixel[1]) if pixel else 0
            data = child.stdout.read(size)
        finally:
            clock.cancel()
        if line.endswith(b"\n") and len(data) == size:
            return line, data
        self._end()
        if late.is_set():
            raise _Ended(f"took more than {seconds:.0f} s")
        code = child.returncode
        raise _Ended(f"ended the decoder ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})")

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()  # it has nothing to finish
            with suppress(BrokenPipeError), child:  # closes the pipes and waits
                pass
