"""Entries that may stand in one table.  Rows of another preset, budget or data never do; of other code, on request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mona_train.bench.entries import Entry
from mona_train.bench.published import ALL_LABELS, DATASETS, TABLES, TITLES, beside
from mona_train.bench.reading import Measured
from mona_train.config.presets import PRESETS
from mona_train.config.schema import Config


@dataclass(frozen=True)
class Section:
    """Entries that may stand in one table: of one table of the bench, data set, preset, number of steps and code."""

    table: str
    dataset: str
    preset: str
    steps: int  # of each row: a method that was trained longer is not a better one
    content: str  # hash of the prepared data
    code: str  # "" where rows of different code were put together on request
    entries: tuple[Entry, ...]

    @property
    def rows(self) -> list[Measured]:
        return [row for entry in self.entries for row in entry.rows]

    @property
    def title(self) -> str:
        name = DATASETS.get(self.dataset, self.dataset)
        what = name if self.table == self.dataset else f"{self.table} ({name})"
        return f"{what[0].upper()}{what[1:]}, preset {self.preset}{self._budget}"

    @property
    def name(self) -> tuple[str, str, str, int]:
        """What it is a measurement of: the same for older code and other data."""
        return self.table, self.dataset, self.preset, self.steps

    @property
    def usual(self) -> bool:
        """Whether its rows had the steps of the preset."""
        known = PRESETS.get(self.preset)  # none if another version of mona had it
        return known is not None and self.steps == known.values.get("steps", Config.steps)

    @property
    def _budget(self) -> str:
        return "" if self.usual else f" with {self.steps:,} steps"

    @property
    def part(self) -> str:
        return self.entries[0].first.part

    def ratios(self) -> list[float | None]:
        found = {e.first.ratio for e in self.entries if not e.every_label}
        return sorted(found, key=lambda r: 2 if r is None else r) or [None]

    def at(self, ratio: float | None) -> list[Entry]:
        """Entries of a ratio, best first; those that use every label belong to each."""
        chosen = [e for e in self.entries if e.first.ratio == ratio or e.every_label]
        return sorted(chosen, key=lambda e: -e.dsc)


def sections(rows: Iterable[Measured], *, any_code: bool = False) -> list[Section]:
    """The newest code first among sections of the same name, in the order of the paper's tables."""
    found: dict[tuple[str, str, str, int, str, str], list[Measured]] = {}
    for row in rows:
        key = row.table, row.dataset, row.preset, row.steps, row.content, "" if any_code else row.code
        found[key] = [*found.pop(key, ()), row]  # moved to the end: what was written last is the newest
    newest_first = [Section(*key, _entries(key[0], members, any_code)) for key, members in reversed(found.items())]
    order = {name: n for n, name in enumerate(TABLES)}
    return sorted(newest_first, key=lambda s: (order.get(s.table, len(order)), s.table, s.dataset, s.preset, -s.steps))


def _entries(table: str, rows: list[Measured], mixed: bool) -> tuple[Entry, ...]:
    settings: dict[object, list[Measured]] = {}
    for row in rows:
        settings.setdefault(_setting(row, mixed), []).append(row)
    entries = []
    for members in settings.values():
        members = list({row.seed: row for row in sorted(members, key=lambda row: row.seed)}.values())
        cell = beside(members[0], table)
        label = _label(members[0], [row for row in rows if row.method == members[0].method], mixed)
        entries.append(Entry(label, tuple(members), cell))
    return tuple(entries)


def _setting(row: Measured, mixed: bool) -> object:
    """All that makes a row another row, but for its seed."""
    changed = tuple(sorted((key, str(value)) for key, value in row.settings.items()))
    code = row.code if mixed else ""
    ratio = None if row.method == ALL_LABELS else row.ratio
    return row.method, ratio, row.pretrain, row.principles, row.student, row.teacher, changed, code


def _label(row: Measured, same_method: list[Measured], mixed: bool) -> str:
    """The method's name, and as much more as tells it from the other rows of that method."""
    title = TITLES.get(row.method, row.method)
    said = [title]

    def differs(name: str) -> bool:
        return len({getattr(other, name) for other in same_method}) > 1

    if differs("pretrain"):
        said.append({"none": "no pre-training"}.get(row.pretrain, f"after {TITLES.get(row.pretrain, row.pretrain)}"))
    if differs("principles"):
        said.append(" + ".join(row.principles) or "no principle")
    if differs("student") or differs("teacher"):
        said.append(f"student {row.student}, teacher {row.teacher}")
    said += own_settings(row, same_method)
    if mixed:
        said.append(f"code {row.code[:7]}")
    return ", ".join(said)


def own_settings(row: Measured, others: list[Measured]) -> list[str]:
    """What was changed with --set in this row but not in all of the others, as key=value."""
    shared = set.intersection(*(set(_changed(other)) for other in others))
    return [said for said in _changed(row) if said not in shared]


def shared_settings(rows: list[Measured]) -> list[str]:
    """What was changed in all rows of a method, which is no part of their labels; of all methods together."""
    methods = {row.method: [other for other in rows if other.method == row.method] for row in rows}
    shared = {method: set.intersection(*(set(_changed(row)) for row in own)) for method, own in methods.items()}
    found = []
    for said in sorted(set.union(*shared.values())):
        having = [TITLES.get(method, method) for method in methods if said in shared[method]]
        found.append(said if len(having) == len(methods) else f"{said} ({', '.join(having)})")
    return found


def _changed(row: Measured) -> list[str]:
    return [f"{key}={','.join(map(str, v)) if isinstance(v, list) else v}" for key, v in row.settings.items()]
