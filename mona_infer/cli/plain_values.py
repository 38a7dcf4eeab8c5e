"""Text, paths and defaults of options as they are: typer imports pydantic to convert them, a tenth of a second.

Anything else (numbers, wrong values, what is missing) goes typer's way, with its checks and messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

PLAIN = (str, Path)
NUMBERS = (bool, int, float)


def take_plain_values(params: list[Any], hints: dict[str, Any]) -> None:
    """Let these parameters of a command whose function has such type hints take plain values without typer."""
    for param in params:
        if param.multiple:
            param.process_value = _none_given(param.process_value)
        elif param.nargs == 1:
            param.process_value = _quick(param, _plain(hints.get(param.name)), param.process_value)


def _quick(param: Any, kind: type | None, typers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def process(ctx: Any, value: Any) -> Any:
        if kind is not None and isinstance(value, str):
            value = kind(value)
        elif not (value is None and not param.required) and not (type(value) in NUMBERS and value is param.default):
            return typers(ctx, value)
        return value if param.callback is None else param.callback(ctx, param, value)

    return process


def _none_given(typers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An option that may be repeated and was not given."""
    return lambda ctx, value: typers(ctx, value) if value else []


def _plain(hint: Any) -> type | None:
    """str or Path, if the hint is one of them or it or None."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 and kinds[0] in PLAIN else None
