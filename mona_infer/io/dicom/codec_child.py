"""The child process that decodes compressed frames for `codec_process`; a script that imports nothing of mona.

stdin carries, for each frame, a line of JSON and then the codestream; stdout answers with a line of JSON and then the
pixels, after a first line once the codecs are loaded.
"""

import json
import logging
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any, BinaryIO


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """stdin, and a stdout that no codec can print into."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return sys.stdin.buffer, replies


def _limit_memory(count: int, size_at_start: int) -> None:
    """At most `count` bytes of address space more than the loaded codecs take."""
    if size_at_start:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size_at_start + count, resource.RLIM_INFINITY))


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say so, and has no limit on it either."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    # Ctrl-C reaches every process in the terminal; the one that reads the scan decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, replies = _own_pipes()
    warnings.simplefilter("ignore")
    logging.disable()
    modules: dict[str, Any] = sys.modules
    modules["requests"] = None  # pydicom wants it to download examples: a quarter of the time that starting takes

    import numpy as np
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    size_at_start = _address_space()
    replies.write(b"ready\n")
    replies.flush()
    while line := requests.readline():
        request = json.loads(line)
        code = requests.read(request["length"])
        _limit_memory(request["memory"], size_at_start)
        # The parent kills a child that takes too long.  If the parent is gone, the alarm does.
        signal.setitimer(signal.ITIMER_REAL, 2 * request["seconds"])
        try:
            decoder, source = get_decoder(request["syntax"]), encapsulate([code])
            pixels, _ = decoder.as_array(source, index=0, raw=True, **request["options"])
        except MemoryError:
            answer, data = {"error": "decoding it needs too much memory"}, b""
        except Exception as error:
            answer, data = {"error": " ".join(str(error).split())[:500] or type(error).__name__}, b""
        else:
            answer, data = {"dtype": pixels.dtype.str}, np.ascontiguousarray(pixels).tobytes()
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(answer).encode() + b"\n" + data)
        replies.flush()


if __name__ == "__main__":
    main()
