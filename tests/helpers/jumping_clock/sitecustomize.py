"""On PYTHONPATH, it makes the clock of a Python program jump a day ahead or back, every few times that it is read.

`time.monotonic` stays: no system lets that jump.
"""

import itertools
import time

_real, _turn = time.time, itertools.count()
DAY, EVERY = 86_400.0, 3


def _jumping() -> float:
    return _real() + DAY * (next(_turn) // EVERY % 3 - 1)


time.time = _jumping
time.time_ns = lambda: int(1e9 * _jumping())
