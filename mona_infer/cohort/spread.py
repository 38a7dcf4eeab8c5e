"""A function of one thing, over many things and the workers of a cluster: `mona data prepare` and `mona evaluate`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from mona_infer.cohort.cluster import check, connected, parse, slurm_option
from mona_infer.cohort.driver import Driver
from mona_infer.errors import InputError

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Map = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]  # as the builtin


def spread_over(cluster: str, slurm: list[str], doing: str) -> Map:
    """A `map` whose calls run on a cluster; what a call raises is raised here.  Nothing is started before it is used.

    The function may be a closure.  A thing whose worker is lost is tried again alone; one that nobody survives ends it.
    """
    place, options = parse(cluster), dict(map(slurm_option, slurm))
    check(place, options)

    def spread(function: Callable[[Thing], Result], things: list[Thing]) -> Iterator[Result]:
        with connected(place, options) as workers:
            found = dict(Driver(workers, _Calls(function, doing)).run(list(enumerate(things))))
        return (found[n] for n in range(len(things)))

    return spread


def _each(function: Callable[[Any], Any], things: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    return [(n, function(thing)) for n, thing in things]


class _Calls:
    def __init__(self, function: Callable[[Any], Any], doing: str) -> None:
        self.doing, self._function = doing, function
        self.name = f"mona-{secrets.token_hex(4)}"

    def task(self, items: list[tuple[int, Any]], careful: bool) -> tuple[Any, ...]:
        return _each, self._function, items

    def results(self, answer: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        return answer

    def bad(self, item: tuple[int, Any]) -> tuple[int, Any]:
        thing = item[1][0] if isinstance(item[1], tuple) else item[1]
        raise InputError(f"{getattr(thing, 'name', thing)}: every worker that had it, and nothing else, was lost")

    def begin(self, client: Any) -> None: ...

    def stop(self, client: Any) -> None: ...

    def end(self, client: Any) -> None: ...
