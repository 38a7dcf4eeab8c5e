"""Settings: frozen dataclasses to TOML and back, and `--set a.b=text`.

The dataclasses are the schema.  Files are read strictly: an unknown key is an error (the message suggests the nearest
known name) and is never ignored.  Limits on a value are checked by its dataclass, whose `__post_init__` raises
InputError.  Where the type allows it, `none` means no value, in a file and on the command line.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mona_infer.errors import InputError

T = TypeVar("T")
Tables = Mapping[str, type]  # dotted name of a table -> its dataclass
UNIONS = (Union, types.UnionType)
NONE = "none"
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): NONE}
PARSERS: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: BOOLEANS[text.lower()],
    str: lambda text: (
        text.encode().decode()
    ),  # fails on half a UTF-8 character from the shell, which cannot be saved to a file
}


class _Mismatch(Exception):
    """A value does not have the type of its setting."""


def to_toml(settings: Any) -> str:
    """Every setting, including defaults; the first line of a dataclass's docstring is the title of its table."""
    return "\n".join(_table(settings, "")).lstrip("\n") + "\n"


def from_toml(text: str, kind: type[T], *, source: str = "run.toml", tables: Tables | None = None) -> T:
    """Read a file written by `to_toml` or by a person; missing settings get the default of their dataclass.

    tables: {"stages.acr": ACRSettings} where the annotation (dict[str, Any]) does not name the dataclass.  Then only
    these entries are known, and each one is created even if the file does not contain it.
    """
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: syntax, and integers of thousands of digits
        raise InputError(f"{source} is not TOML: {error}") from error
    read: T = _File(kind, source, tables or {}).table(kind, found, "")
    return read


def with_value(settings: T, key: str, text: str) -> T:
    """A copy in which the setting `key` has the value parsed from `text`.

    The name of a dict of tables may be omitted: acr.queries is stages.acr.queries.
    """
    full, short = {}, {}
    for name, abbreviated, hint in _known(type(settings), "", "", dict(_tables_of(settings, ""))):
        full[name], short[abbreviated] = hint, name
    name = key if key in full else short.get(key, key)
    if name not in full:
        below = [n for n in dict.fromkeys([*short, *full]) if n.startswith(key + ".")]
        if below:
            raise InputError(f"--set {key}: this is a table of settings; set one of {', '.join(below)}")
        raise InputError(f"--set {key}: unknown setting; {_nearest(key, [*short, *full])}")
    try:
        value = _value(full[name], text.strip(), from_text=True)
    except _Mismatch:
        raise InputError(f"--set {key}={text}: expected {_expected(full[name], from_text=True)}") from None
    changed: T = _replaced(settings, name.split("."), value)
    return changed


def within(table: Any, name: str, least: float, most: float | None, *keys: str) -> None:
    """For `__post_init__`: check that these settings of the table `name` are in a range, including both limits."""
    for key in keys:
        value = getattr(table, key)
        if value < least or (most is not None and value > most):
            limits = f"{least:g} or greater" if most is None else f"from {least:g} to {most:g}"
            raise InputError(f"{name}.{key} must be {limits}, found {value:g}")


# ---- writing


def _table(table: Any, path: str) -> Iterator[str]:
    below, lines = [], []
    for key, value, default in _entries(table):
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key, path)
        if is_dataclass(value) or isinstance(value, dict):
            below.append((value, _join(path, name)))
        elif value is None and default in (None, MISSING):
            lines.append(f"# {name}: {NONE}")  # TOML has no null, and a reader wants to see that the setting exists
        else:
            lines.append(f"{name} = {_literal(NONE if value is None else value, name)}")
    if is_dataclass(table) or lines or not below:  # a dict of tables needs no header of its own
        yield from ("", *_title(table), *([f"[{path}]"] if path else []), *lines)
    for value, name in below:
        yield from _table(value, name)


def _title(table: Any) -> list[str]:
    first = (type(table).__doc__ or "").strip().partition("\n")[0]
    generated = first.startswith(
        f"{type(table).__name__}("
    )  # dataclass() makes the signature the docstring of a class without one
    return [f"# {first}"] if is_dataclass(table) and first and not generated else []


def _literal(value: Any, name: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():  # a NumPy float is a float, and its own repr is np.float64(1.0)
            return (float if isinstance(value, float) else int).__repr__(value)
        case str():  # JSON has the same escapes as TOML, except for DEL
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple() | list():
            return "[" + ", ".join(_literal(v, name) for v in value) + "]"
    raise TypeError(f"{name}: a setting cannot be a {type(value).__name__}")


# ---- reading


class _File:
    def __init__(self, kind: type, source: str, tables: Tables) -> None:
        self.source, self.tables = source, tables
        self.known = [name for name, _, _ in _known(kind, "", "", tables)]

    def table(self, kind: Any, found: dict[str, Any], path: str) -> Any:
        hints, values = _hints(kind), {}
        self.refuse_unknown(found, hints, path)
        for f in fields(kind):
            here = _join(path, f.name)
            if f.name in found:
                values[f.name] = self.field(hints[f.name], found[f.name], here)
            elif f.init and (_required(f) or _inside(here, self.tables)):
                values[f.name] = self.missing(hints[f.name], here)
        try:
            return kind(**values)
        except InputError as error:  # from __post_init__, which does not know where its values came from
            raise InputError(f"{self.source}{', ' * bool(path)}{path}: {error}") from error

    def field(self, hint: Any, found: Any, path: str) -> Any:
        hint = self.tables.get(path, hint)
        if is_dataclass(hint) and isinstance(found, dict):
            return self.table(hint, found, path)
        if get_origin(hint) is dict and isinstance(found, dict):
            names = _inside(path, self.tables) or list(found)
            self.refuse_unknown(found, names, path)
            return {n: self.field(get_args(hint)[1], found.get(n, {}), _join(path, n)) for n in names}
        try:
            return _value(hint, found)
        except _Mismatch:
            shown = "a table" if isinstance(found, dict) else json.dumps(found, ensure_ascii=False, default=str)
            raise InputError(f"{self.source}: {path}: expected {_expected(hint)}, found {shown}") from None

    def missing(self, hint: Any, path: str) -> Any:
        if type(None) in get_args(hint):
            return None
        if is_dataclass(hint) or get_origin(hint) is dict:
            return self.field(hint, {}, path)
        raise InputError(f"{self.source}: {path} is missing; expected {_expected(hint)}")

    def refuse_unknown(self, found: Iterable[str], known: Iterable[str], path: str) -> None:
        for name in (_join(path, key) for key in found if key not in known):
            names = [
                *self.known,
                *(_join(path, key) for key in known),
            ]  # self.known does not contain the entries of a dict
            raise InputError(f"{self.source}: unknown setting {name}; {_nearest(name, names)}")


# ---- types


def _value(hint: Any, found: Any, *, from_text: bool = False) -> Any:
    """Convert a value from a file, or a text from the command line, to this type."""
    origin, members = get_origin(hint), get_args(hint)
    if hint is Any:
        return found
    if origin in UNIONS:
        if type(None) in members and (found.lower() if from_text else found) == NONE:
            return None
        for member in sorted(members, key=lambda m: m is str):  # str last: any text is a valid str
            try:
                return _value(member, found, from_text=from_text)
            except _Mismatch:
                continue
    elif origin is Literal:
        for choice in members:
            if (str(choice) if from_text else choice) == found and (from_text or type(choice) is type(found)):
                return choice
    elif origin is tuple:
        parts = _split(found, members) if from_text else found
        if isinstance(parts, list):
            kinds = members[:1] * len(parts) if members[1:] == (...,) else members
            if len(parts) == len(kinds):
                return tuple(_value(k, p, from_text=from_text) for k, p in zip(kinds, parts, strict=True))
    else:
        try:
            found = PARSERS[hint](found) if from_text else found
            found = float(found) if hint is float and type(found) is int else found
        except (ValueError, KeyError, OverflowError):
            raise _Mismatch from None
        # a bool is not an int here, and NaN and infinity would pass range checks
        if type(found) is hint and (hint is not float or math.isfinite(found)):
            return found
    raise _Mismatch


def _split(text: str, members: tuple[Any, ...]) -> list[str] | None:
    """96x96 and 96,96 are two numbers; text is split at commas only; an empty text is an empty list."""
    parts = [part.strip() for part in re.split("," if str in members else "[x,]", text)] if text else []
    return None if "" in parts else parts


def _expected(hint: Any, *, from_text: bool = False) -> str:
    """A description of a type, for error messages."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ("one of " if len(members) > 1 else "") + ", ".join(map(str, members))
    if origin in UNIONS:
        return " or ".join(_expected(m, from_text=from_text) for m in members)
    if origin is tuple:
        many = members[1:] == (...,)
        kinds = dict.fromkeys(_expected(m) for m in members if m is not ...)
        how = " separated by commas" if str in members or many else " written like 96x96"
        return f"{'any number of' if many else len(members)} values{how * from_text}, each {' or '.join(kinds)}"
    return TYPE_NAMES.get(hint, "a table")


# ---- names


def _known(hint: Any, path: str, short: str, tables: Tables) -> Iterator[tuple[str, str, Any]]:
    """(dotted name, dotted name without the names of dicts, type) of every setting."""
    hint = tables.get(path, hint)
    if is_dataclass(hint):
        for name, inner in _hints(hint).items():
            yield from _known(inner, _join(path, name), _join(short, name), tables)
    elif get_origin(hint) is dict and _inside(path, tables):
        for name in _inside(path, tables):
            yield from _known(Any, _join(path, name), _join(short.rpartition(".")[0], name), tables)
    else:
        yield path, short, hint


def _tables_of(value: Any, path: str) -> Iterator[tuple[str, type]]:
    """The dataclass of every table of these settings, by its dotted name."""
    if is_dataclass(value):
        yield path, type(value)
    for key, item, _ in _entries(value):
        yield from _tables_of(item, _join(path, key))


def _entries(table: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, default or default factory) of every setting of a table; nothing if it is not a table."""
    if isinstance(table, dict):
        yield from ((key, value, MISSING) for key, value in table.items())
    elif is_dataclass(table):
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory for f in fields(table)}
        yield from ((f.name, getattr(table, f.name), defaults[f.name]) for f in fields(table) if f.init)


def _inside(path: str, tables: Tables) -> list[str]:
    return [name.removeprefix(path + ".") for name in tables if name.rpartition(".")[0] == path]


def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if f.init}


def _required(f: Field[Any]) -> bool:
    return f.default is MISSING and f.default_factory is MISSING


def _replaced(table: Any, names: list[str], value: Any) -> Any:
    if not names:
        return value
    if isinstance(table, dict):
        return {**table, names[0]: _replaced(table[names[0]], names[1:], value)}
    return replace(table, **{names[0]: _replaced(getattr(table, names[0]), names[1:], value)})


def _nearest(name: str, names: list[str]) -> str:
    """A suggestion: a similar name, or the same name in another table."""

    table, _, leaf = name.rpartition(".")

    def similarity(other: str) -> float:
        table_, _, leaf_ = other.rpartition(".")
        whole, last = (difflib.SequenceMatcher(None, *pair).ratio() for pair in ((name, other), (leaf, leaf_)))
        alike = (
            last if table == table_ else max(whole, last)
        )  # two settings are not similar just because they share a table
        return whole if alike >= 0.65 else 0.0

    best = max(names, key=similarity, default="")
    if best and similarity(best):
        return f"did you mean {best}?"
    siblings = [n for n in names if n.startswith(table + ".")]
    return "choose one of " + ", ".join(siblings or dict.fromkeys(names))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
