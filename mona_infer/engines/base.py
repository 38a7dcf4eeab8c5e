"""`Engine`: what runs a model's network; and the registry of engines that `--engine` chooses from.

Every module of this folder with ENGINES in it offers engines: dropping a file in is all it takes.  Help texts, errors
and `mona doctor` are made from what is found.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mona_infer.errors import InputError, MissingPart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mona_infer.models.file import Model

AUTO = "auto"


class Engine(Protocol):
    """A network, ready to run; `description` tells a person what it is and where it runs."""

    description: str
    batch: int  # slices that it likes best at a time

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        """Slices (n, rows, columns), 0..1, of the Task's `input_size` to logits (n, classes, rows, columns)."""
        ...


def in_batches(engine: Engine, slices: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The engine's answer to slices that are at hand, a batch at a time, each with the index of its first slice."""
    for start in range(0, len(slices), engine.batch):
        yield start, engine.run(slices[start : start + engine.batch])


@dataclass(frozen=True)
class Kind:
    """An engine that can be asked for by name."""

    summary: str
    make: Callable[[Model, int], Engine]  # of a model and a number of threads (0: all cores)
    package: str  # what it runs on, by its name on PyPI
    extra: str  # of pyproject.toml, which installs it
    rank: int = 0  # `auto` takes the highest that suits; 0: only when asked for
    suits: Callable[[Model], bool] = lambda model: True


@cache
def engines() -> dict[str, Kind]:
    """All of them by name, those that `auto` prefers first."""
    found: dict[str, Kind] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        offered: dict[str, Kind] = getattr(importlib.import_module(f"{__package__}.{module.name}"), "ENGINES", {})
        found |= offered
    return dict(sorted(found.items(), key=lambda item: (-item[1].rank, item[0])))


def choose(name: str, model: Model, *, threads: int = 0) -> Engine:
    """The engine of that name; `auto`: a TensorRT plan built here, else a GPU, else the processor."""
    known = engines()
    if name in known:
        return known[name].make(model, threads)
    if name != AUTO:
        raise InputError(f"unknown engine {name!r}; choose {', '.join([AUTO, *known])}")
    *preferred, last = [kind for kind in known.values() if kind.rank]
    for kind in preferred:
        try:
            if kind.suits(model):
                return kind.make(model, threads)
        except MissingPart:  # installed, but it does not start here: a GPU build on a machine without a GPU
            continue
    return last.make(model, threads)
