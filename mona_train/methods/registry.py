"""The methods and pre-training stages: `--method` and `--pretrain`.

Every module in this folder that defines METHODS or PRETRAINING adds to them: to add one, add a file.  Errors and
`mona train --method help` are generated from them.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

import mona_train.methods as package
from mona_infer.errors import InputError
from mona_train.methods.base import Method, Stage


@cache
def methods() -> dict[str, Method]:
    """All methods by name, sorted by year and name."""
    offered = [method for module in _modules() for method in getattr(module, "METHODS", ())]
    return {m.name: m for m in sorted(offered, key=lambda m: (m.year, m.name))}


@cache
def pretraining() -> dict[str, type[Stage]]:
    """The stages that can come before the last stage of a method."""
    offered = [stage for module in _modules() for stage in getattr(module, "PRETRAINING", ())]
    return {stage.name: stage for stage in sorted(offered, key=lambda stage: stage.name)}


def method_named(name: str) -> Method:
    known = methods()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InputError(f"unknown method {name!r}; {hint}choose one of {', '.join(known)}")


def stages_of(method: str, pretrain: str = "default") -> tuple[type[Stage], ...]:
    """The stages of a method, its pre-training kept ("default"), left out ("none") or replaced."""
    stages = method_named(method).stages
    if pretrain == "default":
        return stages
    if pretrain == "none":
        return stages[-1:]
    known = pretraining()
    if pretrain not in known:
        choices = " or ".join(repr(name) for name in ("none", *known))
        raise InputError(f"unknown pre-training {pretrain!r}; choose {choices}")
    return known[pretrain], stages[-1]


def first_stage(method: str, asked: str, preferred: str) -> str:
    """The pre-training that was asked for; by default what the preset prefers, for a method that takes any."""
    first, *rest = method_named(method).stages
    return preferred if asked == "default" and rest and first.name in pretraining() else asked


def file_of(method: str) -> Path:
    """The file that adds it."""
    known = method_named(method)
    return next(Path(m.__file__) for m in _modules() if known in getattr(m, "METHODS", ()))


def _modules() -> list[Any]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return [importlib.import_module(f"{__package__}.{name}") for name in names if name != "registry"]
