"""An own list of rows as a TOML file:

    dataset = "acdc"
    preset = "quick"
    seeds = [0, 1]

    [rows.ours]
    methods = ["mona"]
    principles = ["", "consistency"]

    [rows.rivals]
    methods = ["bcp", "unimatch"]
    settings = { optimiser.lr = 0.002 }

Each table of [rows] is a grid; what it does not say is taken from the top of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_train.bench.grids import Grid
from mona_train.bench.rows import PRESET
from mona_train.config.toml import from_toml


@dataclass(frozen=True)
class Rows:
    """Every combination is a row."""

    methods: tuple[str, ...] = ("mona",)
    pretrain: tuple[str, ...] = ("default",)
    principles: tuple[str, ...] = (PRESET,)
    views: tuple[str, ...] = (PRESET,)
    dataset: str | None = None
    ratios: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    preset: str | None = None
    steps: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class List:
    """A list of rows for `mona bench`."""

    dataset: str
    data: str | None = None
    preset: str | None = None
    ratios: tuple[float, ...] = (0.05,)
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)


def read_list(path: Path, preset: str) -> tuple[Grid, ...]:
    """The grids of a file; `preset` is for those that name none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML: it is not text in UTF-8") from error
    asked = from_toml(text, List, source=str(path))
    if not asked.rows:
        raise InputError(f'{path} lists no rows; add a table such as [rows.ours] with methods = ["mona"]')
    return tuple(_grid(asked, rows, path.stem, preset) for rows in asked.rows.values())


def _grid(asked: List, rows: Rows, table: str, preset: str) -> Grid:
    steps = asked.steps if rows.steps is None else rows.steps
    return Grid(
        table,
        datasets=(rows.dataset or asked.dataset,),
        methods=rows.methods,
        pretrain=rows.pretrain,
        principles=rows.principles,
        views=rows.views,
        ratios=asked.ratios if rows.ratios is None else rows.ratios,
        seeds=asked.seeds if rows.seeds is None else rows.seeds,
        preset=rows.preset or asked.preset or preset,
        steps=steps,
        settings=tuple(_settings({**_flat(asked.settings), **_flat(rows.settings)})),
        data=asked.data if rows.dataset in (None, asked.dataset) else None,
    )


def _settings(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        items = value if isinstance(value, list) else [value]
        yield key, ",".join(str(item).lower() if isinstance(item, bool) else str(item) for item in items)


def _flat(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    """TOML reads optimiser.lr as a table in a table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        found |= _flat(value, name) if isinstance(value, dict) else {name: value}
    return found
