"""resolved.json: the data that a run is trained on, resolved once and kept in the run.

Adapter, data folder, cache, split and Task follow from what the user typed and from the folder they typed it in.
Elsewhere the same command line may resolve to another cache, or to none.  So a run records what it resolved, and export
and resume read that record.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.atomic import write_text
from mona_infer.task import Task
from mona_train.config.schema import Config
from mona_train.data.adapters import adapter_named, adapters, locate, recognise
from mona_train.data.cache import Cache, default_folder
from mona_train.data.case import Adapter, Case
from mona_train.data.split import Split, split
from mona_train.data.training_ranges import training_ranges
from mona_train.data.window import centred_window, organ_window
from mona_train.methods.registry import method_named
from mona_train.networks.unet import STRIDE

FILE = "resolved.json"
FORMAT = 1
ASKED = ("dataset", "data", "method", "ratio", "split_seed", "size", "pixels", "window")  # the settings it depends on


@dataclass(frozen=True)
class Resolved:
    """Paths are absolute."""

    adapter: str
    data: Path
    cache: Path
    content: str  # hash of the cache: the rows of the split are only valid for these slices
    split: Split
    task: Task  # as trained: with its window and the ranges of the training data
    asked: dict[str, Any]
    geometry: str = ""  # scale and window, and why, in words
    corners: dict[str, tuple[int, int]] = field(default_factory=dict)  # case -> top, left of its window in the cache
    levels: dict[str, tuple[float, float]] = field(default_factory=dict)  # case -> the values that become 0 and 1

    @property
    def dataset(self) -> str:
        """The name of the data in a model file."""
        return self.data.name if self.adapter == "folder" else self.adapter

    def cases(self) -> list[Case]:
        return adapter_named(self.adapter).cases(self.data)

    def open_cache(self) -> Cache:
        """The slices that the run was trained on; InputError if they have changed."""
        cache = Cache.open(self.cache)
        if content_of(cache) != self.content:
            raise InputError(f"{self.cache} no longer contains the slices that the run was trained on")
        return cache

    def write(self, run: Path) -> None:
        facts = {"format": FORMAT, "adapter": self.adapter, "data": str(self.data), "cache": str(self.cache)}
        facts |= {"content": self.content, "asked": self.asked, "task": json.loads(self.task.to_json())}
        facts |= {"geometry": self.geometry, "corners": self.corners, "levels": self.levels}
        write_text(run / FILE, json.dumps({**facts, "split": asdict(self.split)}) + "\n")


def read_resolved(run: Path) -> Resolved | None:
    """What a run resolved; None for a run of an older version, which did not record it."""
    path = run / FILE
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise InputError(
                f"{path} has format {facts['format']}, not {FORMAT}: it was written by a newer mona; upgrade mona"
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
            geometry=str(facts.get("geometry", "")),
            corners={str(name): (int(top), int(left)) for name, (top, left) in facts.get("corners", {}).items()},
            levels={str(name): (float(low), float(high)) for name, (low, high) in facts.get("levels", {}).items()},
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it and run `mona train --resume {run}`") from error


def resolve(config: Config, adapter: Adapter, data: Path, cache: Cache) -> Resolved:
    """Resolve these settings for this data."""
    chosen = split(cache, None if method_named(config.method).all_labels else config.ratio, config.split_seed)
    window, first_look, reason = _window(config, cache)
    if window == cache.task.size and cache.task.squeezed:
        window = None
    task = replace(cache.task, window=window, first_look=first_look, seen=training_ranges(cache))
    geometry = "; ".join(words for words in (cache.geometry, reason) if words)
    places = data.resolve(), cache.folder.resolve()
    return Resolved(adapter.name, *places, content_of(cache), chosen, task, _asked(config), geometry)


def labels_for_geometry(config: Config, cache: Cache) -> tuple[int, ...]:
    """The published labelled slices, even if a method uses more: all methods get the same window and first look."""
    return split(cache, config.ratio, config.split_seed).labelled


def resumed_with(before: Resolved, run: Path, data: Path, cache: Cache) -> Resolved:
    """A resumed run keeps what it resolved.  Only its folders may have moved; changed data is refused."""
    if content_of(cache) != before.content:
        raise InputError(
            f"the data in {data} is not what {run} was trained on: scans, labels or their names have changed; "
            "restore it, or start a new run"
        )
    return replace(before, data=data.resolve(), cache=cache.folder.resolve())


def check_settings(before: Resolved, config: Config, run: Path) -> None:
    """Settings that the split and the Task depend on cannot change in the middle of a run."""
    started = {"pixels": 0, **before.asked}  # runs of older versions had no `pixels`
    for name, now in _asked(config).items():
        if now != started.get(name):
            raise InputError(
                f"{run / 'run.toml'} says {name} = {now}, but the run was started with {started.get(name)}; "
                "change it back or start a new run (if the data has moved, use --data FOLDER)"
            )


def find_data(config: Config, before: Resolved | None = None, moved: Path | None = None) -> tuple[Adapter, Path]:
    """Adapter and data folder of a new run, or of one that resolved them `before`; `moved` is --data when resuming."""
    if before is None:
        if moved is not None and config.dataset not in adapters():
            return recognise(moved.expanduser()), moved.expanduser()
        return locate(config.dataset, moved or (Path(config.data) if config.data else None))
    adapter, place = adapter_named(before.adapter), (moved.expanduser() if moved else before.data)
    if adapter.layout and not (place.is_dir() and adapter.recognises(place)):
        problem = f"does not have the layout of {adapter.name}" if place.is_dir() else "does not exist"
        raise InputError(
            f"the run's data was in {before.data}, but {place} {problem}; use --data FOLDER to say where it is now"
        )
    return adapter, place


def find_cache(config: Config, before: Resolved | None, adapter: Adapter, data: Path) -> Path:
    """The run's own cache; if its folder is gone (the run was copied here), the default place for a new one."""
    if before is not None and before.cache.parent.is_dir():
        return before.cache
    return default_folder(adapter.name, data, config.size, config.pixels)


def find_again(config: Config) -> Resolved:
    """For a run of an older version: resolve its run.toml here and now.  Writes nothing."""
    adapter, data = find_data(config)
    return resolve(config, adapter, data, Cache.open(find_cache(config, None, adapter, data)))


def content_of(cache: Cache) -> str:
    """A hash of every source file, every case and the position of its slices."""
    cases = [[c.name, c.patient, c.part, c.first, c.slices, c.first_label, c.image_hash] for c in cache.cases]
    files = sorted(entry["sha256"] for entry in cache.sources.values())
    facts = [cache.dataset, json.loads(cache.task.to_json()), cases, files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _asked(config: Config) -> dict[str, Any]:
    return {name: list(v) if isinstance(v := getattr(config, name), tuple) else v for name in ASKED}


def _window(config: Config, cache: Cache) -> tuple[tuple[int, int] | None, bool, str]:
    """The window, whether a first look places it, and why it was chosen, in words."""
    squeezed = cache.task.squeezed
    if config.window == "full":
        return (cache.task.size, False, "") if squeezed else organ_window(cache, ())
    if config.window == "auto":
        labelled = labels_for_geometry(config, cache)
        return (centred_window(cache, labelled), False, "") if squeezed else organ_window(cache, labelled)
    rows, _, columns = config.window.partition("x")
    if not (rows.isdigit() and columns.isdigit()):
        raise InputError(f"window must be full, auto or a size like 96x96, found {config.window!r}")
    window = int(rows), int(columns)
    if any(side % STRIDE for side in window):
        raise InputError(f"both sides of the window must be multiples of {STRIDE}, like 96x96, found {config.window}")
    if squeezed:
        return window, False, ""
    return window, True, f"the network sees {config.window} around the organ, found by a first look"
