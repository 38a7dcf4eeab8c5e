"""What a run learns from, found once and kept in the run: resolved.json.

Adapter, data folder, cache, split and Task are found from what a user typed, where they typed it.  In another folder
or another command the same words may mean another cache, or none.  So a run writes down what it found, and export and
resume read that.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.atomic import write_text
from mona_infer.task import Task
from mona_train.config.schema import Config
from mona_train.data.adapters import adapter_named, adapters, locate, recognise
from mona_train.data.cache import Cache, default_folder
from mona_train.data.case import Adapter, Case
from mona_train.data.seen import seen
from mona_train.data.split import Split, split
from mona_train.data.window import centred_window
from mona_train.methods.registry import method_named
from mona_train.networks.unet import STRIDE

FILE = "resolved.json"
FORMAT = 1
ASKED = ("dataset", "data", "method", "ratio", "split_seed", "size", "window")  # the settings that it follows from


@dataclass(frozen=True)
class Resolved:
    """Paths are absolute."""

    adapter: str
    data: Path
    cache: Path
    content: str  # of the cache: the split's rows mean these slices and no others
    split: Split
    task: Task  # as trained: with its window and the ranges seen
    asked: dict[str, Any]

    @property
    def dataset(self) -> str:
        """What a model file calls the data it was trained on."""
        return self.data.name if self.adapter == "folder" else self.adapter

    def cases(self) -> list[Case]:
        return adapter_named(self.adapter).cases(self.data)

    def open_cache(self) -> Cache:
        """The very slices that the run was given, or InputError."""
        cache = Cache.open(self.cache)
        if content_of(cache) != self.content:
            raise InputError(f"{self.cache} no longer holds the slices that the run was trained on")
        return cache

    def write(self, run: Path) -> None:
        facts = {"format": FORMAT, "adapter": self.adapter, "data": str(self.data), "cache": str(self.cache)}
        facts |= {"content": self.content, "asked": self.asked, "task": json.loads(self.task.to_json())}
        write_text(run / FILE, json.dumps({**facts, "split": asdict(self.split)}) + "\n")


def read_resolved(run: Path) -> Resolved | None:
    """What a run wrote down; None for a run of an older version, which did not."""
    path = run / FILE
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise InputError(
                f"{path} has format {facts['format']}, not {FORMAT}: a newer mona wrote it; upgrade this one"
            )
        parts: Any = {name: tuple(v) if isinstance(v, list) else v for name, v in facts["split"].items()}
        return Resolved(
            adapter=str(facts["adapter"]),
            data=Path(facts["data"]),
            cache=Path(facts["cache"]),
            content=str(facts["content"]),
            split=Split(**parts),
            task=Task.from_json(json.dumps(facts["task"])),
            asked=dict(facts["asked"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and run `mona train --resume {run}`") from error


def resolve(config: Config, adapter: Adapter, data: Path, cache: Cache) -> Resolved:
    """What these settings mean on this data."""
    chosen = split(cache, None if method_named(config.method).all_labels else config.ratio, config.split_seed)
    window = _window(config, cache)
    task = replace(cache.task, window=window if window != cache.task.size else None, seen=seen(cache))
    places = data.resolve(), cache.folder.resolve()
    return Resolved(adapter.name, *places, content_of(cache), chosen, task, _asked(config))


def goes_on(before: Resolved, run: Path, data: Path, cache: Cache) -> Resolved:
    """A resumed run keeps what it resolved; only the folders may be others.  What has changed is refused."""
    if content_of(cache) != before.content:
        raise InputError(
            f"the data in {data} is not what {run} was trained on: scans, labels or their names have changed; "
            "put it back, or start a new run"
        )
    return replace(before, data=data.resolve(), cache=cache.folder.resolve())


def check_settings(before: Resolved, config: Config, run: Path) -> None:
    """Settings that the split and the Task follow from cannot change in the middle of a run."""
    for name, now in _asked(config).items():
        if now != before.asked.get(name):
            raise InputError(
                f"{run / 'run.toml'} says {name} = {now}, but the run began with {before.asked.get(name)}; put that "
                "back or start a new run (data that has moved: --data FOLDER)"
            )


def find_data(config: Config, before: Resolved | None = None, moved: Path | None = None) -> tuple[Adapter, Path]:
    """Adapter and data folder of a new run, or of one that resolved them `before`; `moved` is --data on a resume."""
    if before is None:
        if moved is not None and config.dataset not in adapters():
            return recognise(moved.expanduser()), moved.expanduser()
        return locate(config.dataset, moved or (Path(config.data) if config.data else None))
    adapter, place = adapter_named(before.adapter), (moved.expanduser() if moved else before.data)
    if adapter.layout and not (place.is_dir() and adapter.recognises(place)):
        found = f"is not laid out like {adapter.name}" if place.is_dir() else "is not there"
        raise InputError(
            f"the run's data was in {before.data}, and {place} {found}; say where it is now with --data FOLDER"
        )
    return adapter, place


def find_cache(config: Config, before: Resolved | None, adapter: Adapter, data: Path) -> Path:
    """The run's own cache; where that place is gone (the run came from another machine), the place for new ones."""
    if before is not None and before.cache.parent.is_dir():
        return before.cache
    return default_folder(adapter.name, data, config.size)


def find_again(config: Config) -> Resolved:
    """For a run of an older version: what the words in its run.toml mean here and now.  Nothing is made."""
    adapter, data = find_data(config)
    return resolve(config, adapter, data, Cache.open(find_cache(config, None, adapter, data)))


def content_of(cache: Cache) -> str:
    """A hash of every source file, every case, and where its slices lie."""
    cases = [[c.name, c.patient, c.part, c.first, c.slices, c.first_label, c.image_hash] for c in cache.cases]
    files = sorted(entry["sha256"] for entry in cache.sources.values())
    facts = [cache.dataset, json.loads(cache.task.to_json()), cases, files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _asked(config: Config) -> dict[str, Any]:
    return {name: list(v) if isinstance(v := getattr(config, name), tuple) else v for name in ASKED}


def _window(config: Config, cache: Cache) -> tuple[int, int]:
    if config.window == "full":
        return cache.task.size
    if config.window == "auto":
        # of the published labelled patients, also where a method is given more of them: one frame for all methods
        return centred_window(cache, split(cache, config.ratio, config.split_seed).labelled)
    rows, _, columns = config.window.partition("x")
    if not (rows.isdigit() and columns.isdigit()):
        raise InputError(f"expected window = full, auto or a size like 96x96, found {config.window!r}")
    window = int(rows), int(columns)
    if any(side % STRIDE for side in window):
        raise InputError(f"expected a window in multiples of {STRIDE}, like 96x96, found {config.window}")
    return window
