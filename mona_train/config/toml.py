"""Settings: frozen dataclasses to TOML and back, and `--set a.b=text`.

The dataclasses are the schema.  A file is read strictly: a key nobody knows is a mistake (the message has the
nearest known name), never ignored.  What a value must satisfy beyond its type is its dataclass's own business:
`__post_init__` raises InputError.  `none` is no value, in a file and on the command line, where a type allows it.
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
SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): NONE}
SPELLED: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: SWITCH[text.lower()],
    str: lambda text: text.encode().decode(),  # fails on half a UTF-8 character from the shell: no file can hold it
}


class _Mismatch(Exception):
    """A value is not of the type that its setting has."""


def to_toml(settings: Any) -> str:
    """Every setting, defaults too; each table under the first line of its dataclass's docstring."""
    return "\n".join(_table(settings, "")).lstrip("\n") + "\n"


def from_toml(text: str, kind: type[T], *, source: str = "run.toml", tables: Tables | None = None) -> T:
    """Read what `to_toml` wrote, or a person; what is left out takes its dataclass's default.

    tables: {"stages.acr": ACRSettings} where the annotation (dict[str, Any]) does not name the dataclass; then
    these entries and no others are known, and each is made even where the file has none of it.
    """
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: syntax, and integers of thousands of digits
        raise InputError(f"{source} is not TOML: {error}") from error
    read: T = _File(kind, source, tables or {}).table(kind, found, "")
    return read


def with_value(settings: T, key: str, text: str) -> T:
    """A copy in which the setting called `key` has the value that `text` spells.

    The name of a dict of tables may be left out: acr.queries is stages.acr.queries.
    """
    full, short = {}, {}
    for name, abbreviated, hint in _known(type(settings), "", "", dict(_tables_of(settings, ""))):
        full[name], short[abbreviated] = hint, name
    name = key if key in full else short.get(key, key)
    if name not in full:
        below = [n for n in dict.fromkeys([*short, *full]) if n.startswith(key + ".")]
        if below:
            raise InputError(f"--set {key}: this is a table; set one of {', '.join(below)}")
        raise InputError(f"--set {key}: unknown setting; {_nearest(key, [*short, *full])}")
    try:
        value = _value(full[name], text.strip(), spelled=True)
    except _Mismatch:
        raise InputError(f"--set {key}={text}: expected {_expected(full[name], spelled=True)}") from None
    changed: T = _replaced(settings, name.split("."), value)
    return changed


def within(table: Any, name: str, least: float, most: float | None, *keys: str) -> None:
    """For `__post_init__`: these settings of the table called `name` must lie in a range, both ends included."""
    for key in keys:
        value = getattr(table, key)
        if value < least or (most is not None and value > most):
            limits = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
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
    if is_dataclass(table) or lines or not below:  # the header of a dict of tables would say nothing
        yield from ("", *_title(table), *([f"[{path}]"] if path else []), *lines)
    for value, name in below:
        yield from _table(value, name)


def _title(table: Any) -> list[str]:
    first = (type(table).__doc__ or "").strip().partition("\n")[0]
    made_up = first.startswith(f"{type(table).__name__}(")  # dataclass() gives a class without docstring its signature
    return [f"# {first}"] if is_dataclass(table) and first and not made_up else []


def _literal(value: Any, name: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():  # a NumPy float is a float, and its own repr is np.float64(1.0)
            return (float if isinstance(value, float) else int).__repr__(value)
        case str():  # JSON's escapes are TOML's, but for DEL
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
        except InputError as error:  # of __post_init__, which does not know where its values came from
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
            names = [*self.known, *(_join(path, key) for key in known)]  # self.known ends where a dict begins
            raise InputError(f"{self.source}: unknown setting {name}; {_nearest(name, names)}")


# ---- types


def _value(hint: Any, found: Any, *, spelled: bool = False) -> Any:
    """What was found as a value of this type: in a file, or spelled as text on a command line."""
    origin, members = get_origin(hint), get_args(hint)
    if hint is Any:
        return found
    if origin in UNIONS:
        if type(None) in members and (found.lower() if spelled else found) == NONE:
            return None
        for member in sorted(members, key=lambda m: m is str):  # str last: any text spells one
            try:
                return _value(member, found, spelled=spelled)
            except _Mismatch:
                continue
    elif origin is Literal:
        for choice in members:
            if (str(choice) if spelled else choice) == found and (spelled or type(choice) is type(found)):
                return choice
    elif origin is tuple:
        parts = _split(found, members) if spelled else found
        if isinstance(parts, list):
            kinds = members[:1] * len(parts) if members[1:] == (...,) else members
            if len(parts) == len(kinds):
                return tuple(_value(k, p, spelled=spelled) for k, p in zip(kinds, parts, strict=True))
    else:
        try:
            found = SPELLED[hint](found) if spelled else found
            found = float(found) if hint is float and type(found) is int else found
        except (ValueError, KeyError, OverflowError):
            raise _Mismatch from None
        # a bool is no int here; and NaN and infinity would pass range checks
        if type(found) is hint and (hint is not float or math.isfinite(found)):
            return found
    raise _Mismatch


def _split(text: str, members: tuple[Any, ...]) -> list[str] | None:
    """96x96 and 96,96 are two numbers; text is separated by commas only; nothing is an empty list."""
    parts = [part.strip() for part in re.split("," if str in members else "[x,]", text)] if text else []
    return None if "" in parts else parts


def _expected(hint: Any, *, spelled: bool = False) -> str:
    """A type in words."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ("one of " if len(members) > 1 else "") + ", ".join(map(str, members))
    if origin in UNIONS:
        return " or ".join(_expected(m, spelled=spelled) for m in members)
    if origin is tuple:
        many = members[1:] == (...,)
        kinds = dict.fromkeys(_expected(m) for m in members if m is not ...)
        how = " separated by commas" if str in members or many else " written like 96x96"
        return f"{'any number of' if many else len(members)} values{how * spelled}, each {' or '.join(kinds)}"
    return WORDS.get(hint, "a table")


# ---- names


def _known(hint: Any, path: str, short: str, tables: Tables) -> Iterator[tuple[str, str, Any]]:
    """(dotted name, the same without names of dicts, type) of every setting."""
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
    """(name, value, default or what makes it) of a table's settings; nothing of what is no table."""
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
    """What may have been meant: something alike as a whole, or called so inside another table."""

    table, _, leaf = name.rpartition(".")

    def likeness(other: str) -> float:
        table_, _, leaf_ = other.rpartition(".")
        whole, last = (difflib.SequenceMatcher(None, *pair).ratio() for pair in ((name, other), (leaf, leaf_)))
        alike = last if table == table_ else max(whole, last)  # a common table makes no two settings alike
        return whole if alike >= 0.65 else 0.0

    best = max(names, key=likeness, default="")
    if best and likeness(best):
        return f"did you mean {best}?"
    siblings = [n for n in names if n.startswith(table + ".")]
    return "choose one of " + ", ".join(siblings or dict.fromkeys(names))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
