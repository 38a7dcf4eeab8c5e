"""Batches through an engine, several at a time where it is faster that way (`Engine.lanes`), their results in order.

One network on two threads makes both wait for each other after every layer; two batches on a thread each do not.
ONNX Runtime gives the same bits either way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from mona_kernels.native import use_one_thread

T = TypeVar("T")
R = TypeVar("R")


def spans(count: int, most: int, lanes: int) -> list[tuple[int, int]]:
    """Start and end of batches of `count` items: at most so many items each, and as many batches for every lane."""
    rounds = -(-count // (most * lanes))
    step = -(-count // (rounds * lanes))
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def in_order(call: Callable[[T], R], items: Iterable[T], lanes: int) -> Iterator[R]:
    """call(item) for each item, on as many threads as there are lanes; one more than that is under way or waits."""
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(lanes, initializer=use_one_thread) as pool:
        try:
            for item in items:
                pending.append(pool.submit(call, item))
                if len(pending) > lanes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # after an error, or where no one asks for the rest
            for future in pending:
                future.cancel()
