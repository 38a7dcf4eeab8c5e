"""`Engine`, which runs a model's network, and the registry of engines that `--engine` chooses from.

Every module in this folder that defines ENGINES adds engines: a new engine is one new file.  Help texts, errors and
`mona doctor` are generated from the registry.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import mona_infer.engines as package
from mona_infer.errors import InputError, MissingPart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mona_infer.models.file import Model

AUTO = "auto"


class Engine(Protocol):
    """A network, ready to run; `description` says what runs it and where."""

    description: str
    batch: int  # slices at a time that it runs fastest with; see `lanes_of`

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        """Slices (n, rows, columns) of the Task's `input_size`, in 0..1, to logits (n, classes, rows, columns)."""
        ...


def lanes_of(engine: Engine, batch: int) -> int:
    """Into how many calls at the same time, from threads of our own, to part so many slices at a time."""
    return min(batch, getattr(engine, "lanes", 1))


def in_batches(
    engine: Engine, slices: NDArray[np.float32], batch: int = 0
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The engine's answer to slices that are at hand, a batch at a time, each with the index of its first slice."""
    batch = batch or engine.batch
    lanes = lanes_of(engine, batch)
    if lanes == 1:
        for start in range(0, len(slices), batch):
            yield start, engine.run(slices[start : start + batch])
        return
    from mona_infer.engines.lanes import in_order, spans

    batches = spans(len(slices), batch // lanes, lanes)
    answers = in_order(lambda span: engine.run(slices[slice(*span)]), batches, lanes)
    yield from ((start, answer) for (start, _), answer in zip(batches, answers, strict=True))


@dataclass(frozen=True)
class Kind:
    """An engine that can be chosen by name."""

    summary: str
    make: Callable[[Model, int], Engine]  # from a model and a number of threads (0: all cores)
    package: str  # the runtime's name on PyPI
    extra: str  # the extra in pyproject.toml that installs it
    rank: int = 0  # `auto` takes the highest rank that suits the model; 0: only by name
    suits: Callable[[Model], bool] = lambda model: True
    plans: bool = False  # it compiles a plan of each model for one GPU, which takes minutes


@cache
def engines() -> dict[str, Kind]:
    """All engines by name, those that `auto` prefers first."""
    registry: dict[str, Kind] = {}
    for module in pkgutil.iter_modules(package.__path__):
        defined: dict[str, Kind] = getattr(importlib.import_module(f"{__package__}.{module.name}"), "ENGINES", {})
        registry |= defined
    return dict(sorted(registry.items(), key=lambda item: (-item[1].rank, item[0])))


def choose(name: str, model: Model, *, threads: int = 0) -> Engine:
    """The named engine; `auto` takes a TensorRT plan built on this machine, else a GPU, else the CPU."""
    return _chosen(name, model, threads)[1]


def choose_both(name: str, model: Model, *, threads: int = 0) -> tuple[Engine, Engine | None]:
    """The engine of a model, and one of the same kind for its first look, if it has one.

    That small network is not worth a plan: beside engines that need one it runs on the CPU.
    """
    kind, engine = _chosen(name, model, threads)
    if model.first_look is None:
        return engine, None
    return engine, (engines()["cpu"] if kind.plans else kind).make(model.first_look, threads)


def _chosen(name: str, model: Model, threads: int) -> tuple[Kind, Engine]:
    known = engines()
    if name in known:
        return known[name], known[name].make(model, threads)
    if name != AUTO:
        raise InputError(f"unknown engine {name!r}; choose {', '.join([AUTO, *known])}")
    *preferred, last = [kind for kind in known.values() if kind.rank]
    for kind in preferred:
        try:
            if kind.suits(model):
                return kind, kind.make(model, threads)
        except MissingPart:  # installed but cannot start: a GPU build on a machine without a GPU
            continue
    return last, last.make(model, threads)
