"""`mona` in a process of its own that ends with the server: `python -m mona_infer.serving.child train ...`.

The server holds the other end of standard input.  When that closes, whether the server was stopped or killed, the
process gets the same signal as from Ctrl-C, and training saves its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def _stop_with_the_server() -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock, held here, would abort the interpreter when it ends
        pass
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    from mona_infer.cli.main import main as mona

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a server started with & hands down that it is ignored
    threading.Thread(target=_stop_with_the_server, daemon=True).start()
    sys.argv[0] = "mona"
    mona()


if __name__ == "__main__":
    main()
