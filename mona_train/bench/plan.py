"""What there is to do: the rows of a table, which of them are finished, and the pre-training that others share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mona_train.bench.results import Results
from mona_train.bench.rows import Row, config_key, pretraining_key, row_key
from mona_train.bench.sources import Source, Sources
from mona_train.config.schema import Config
from mona_train.run.code import code_hash

FINISHED, OTHER_CODE, TO_DO = "finished", "finished by other code", "to do"


@dataclass(frozen=True)
class Planned:
    row: Row
    key: str
    pretraining: str | None  # key of what comes before its last stage
    source: Source
    state: str
    run: Path

    @property
    def config(self) -> Config:
        return self.row.config


@dataclass(frozen=True)
class Plan:
    table: str
    rows: tuple[Planned, ...]
    folder: Path

    @property
    def to_do(self) -> list[Planned]:
        return [row for row in self.rows if row.state == TO_DO]

    @property
    def shared(self) -> dict[str, list[Planned]]:
        """Key of a pre-training -> the rows that are left to do and start from it: at least two."""
        count = Counter(row.pretraining for row in self.to_do if row.pretraining)
        return {
            key: [row for row in self.to_do if row.pretraining == key]
            for key, rows in count.items()
            if rows > 1 or self.pretrained(key).is_dir()
        }

    def pretrained(self, key: str) -> Path:
        return self.folder / "pretraining" / key

    def state(self, name: str) -> list[Planned]:
        return [row for row in self.rows if row.state == name]


def plan(rows: list[Row], folder: Path, results: Results, *, ready: bool, any_code: bool = False) -> Plan:
    """ready: the data is prepared where it was not; any_code: rows that other code measured count as finished."""
    sources, code, found = Sources(), code_hash(), []
    for row in rows:  # before any data is touched: unknown methods and settings
        assert row.config
    for row in rows:
        source = sources.of(row.config, ready=ready)
        key = row_key(row.config, source.content, code)
        shared = pretraining_key(row.config, source.content, code)
        state = TO_DO
        if results.find(row.table, key) is not None:
            state = FINISHED
        elif any_code and results.by_other_code(row.table, config_key(row.config), source.content):
            state = OTHER_CODE
        found.append(Planned(row, key, shared, source, state, folder / "rows" / row.folder_name(key)))
    distinct = {planned.key: planned for planned in found}  # two rows may come to the same settings
    return Plan(rows[0].table, tuple(distinct.values()), folder)
