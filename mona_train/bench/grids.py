"""A grid: every combination of its values is a row.  The paper's tables are grids, and so are the tables of a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

from mona_train.bench.rows import PRESET, Row


@dataclass(frozen=True)
class Grid:
    """Every combination is a row."""

    table: str
    datasets: tuple[str, ...] = ("acdc",)
    methods: tuple[str, ...] = ("mona",)
    pretrain: tuple[str, ...] = ("default",)
    principles: tuple[str, ...] = (PRESET,)
    views: tuple[str, ...] = (PRESET,)
    ratios: tuple[float, ...] = (0.05,)
    seeds: tuple[int, ...] = (0,)
    preset: str = "cpu"
    steps: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    data: str | None = None
    open: bool = False  # --methods may name methods that are not in it

    def rows(self) -> Iterable[Row]:
        """One seed after the other, so that an interrupted bench has whole tables of the first ones."""
        axes = self.seeds, self.datasets, self.ratios, self.methods, self.pretrain, self.principles, self.views
        for seed, dataset, ratio, method, pretrain, principles, views in product(*axes):
            yield Row(
                table=self.table,
                dataset=dataset,
                method=method,
                preset=self.preset,
                ratio=ratio,
                seed=seed,
                pretrain=pretrain,
                principles=principles,
                views=views,
                steps=self.steps,
                settings=self.settings,
                data=self.data,
            )


@dataclass(frozen=True)
class Narrowing:
    """What the options of `mona bench` change in the grids of a table; None: as it is."""

    methods: tuple[str, ...] | None = None
    ratios: tuple[float, ...] | None = None
    seeds: tuple[int, ...] | None = None
    preset: str | None = None
    steps: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    data: str | None = None

    def of(self, grid: Grid) -> Grid | None:
        """None if nothing is left of it."""
        named = ("ratios", "seeds", "preset", "steps", "data")
        grid = replace(grid, **{name: value for name in named if (value := getattr(self, name)) is not None})
        if self.methods is not None:
            kept = self.methods if grid.open else tuple(m for m in grid.methods if m in self.methods)
            if not kept:
                return None
            grid = replace(grid, methods=kept)
        return replace(grid, settings=(*grid.settings, *self.settings))


def rows_of(grids: Iterable[Grid], narrowing: Narrowing) -> list[Row]:
    """Seed by seed, each row once."""
    left = [grid for grid in map(narrowing.of, grids) if grid is not None]
    rows = dict.fromkeys(row for grid in left for row in grid.rows())
    seeds = list(dict.fromkeys(row.seed for row in rows))
    return sorted(rows, key=lambda row: seeds.index(row.seed))
