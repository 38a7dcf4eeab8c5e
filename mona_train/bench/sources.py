"""The data of rows: prepared once, before any row starts, so that rows side by side share cache and first look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.task import CARDIAC, Task
from mona_train.config.schema import Config
from mona_train.data.cache import Cache
from mona_train.data.prepare import prepare
from mona_train.data.resolved import content_of, find_cache, find_data, resolve


@dataclass(frozen=True)
class Source:
    """What a row's data is; without data, a guess of what its network sees, and why."""

    task: Task
    content: str = ""
    missing: str = ""


class Sources:
    def __init__(self) -> None:
        self._caches: dict[Path, Cache] = {}
        self._found: dict[tuple[Any, ...], Source] = {}

    def of(self, config: Config, *, ready: bool) -> Source:
        """ready: prepare what is missing, or fail; else take only what there is, and write nothing."""
        what = config.dataset, config.data, config.size, config.pixels, config.window, config.ratio, config.split_seed
        key = (*what, config.method, ready)
        if key not in self._found:
            self._found[key] = self._look(config, ready)
        return self._found[key]

    def _look(self, config: Config, ready: bool) -> Source:
        try:
            adapter, data = find_data(config)
            folder = find_cache(config, None, adapter, data)
            if folder not in self._caches:
                made = prepare(adapter, data, folder, config.size, pixels=config.pixels) if ready else None
                self._caches[folder] = made or Cache.open(folder)
            cache = self._caches[folder]
            resolved = resolve(config, adapter, data, cache)
        except InputError as error:
            if ready:
                raise
            return Source(_guess(config), missing=str(error))
        if ready and resolved.task.first_look:
            from mona_train.engine.first_look import shared_look

            shared_look(config, resolved, cache)
        return Source(resolved.task, content_of(cache))


def _guess(config: Config) -> Task:
    """Half of the long side is a usual window."""
    side = max(16, round(config.pixels / 2 / 16) * 16)
    return replace(CARDIAC, size=(side, side) if config.pixels else config.size)
