"""The models that can be chosen by name, the one in use, and the engines that are kept ready."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mona_infer.engines.base import AUTO
from mona_infer.errors import InputError
from mona_infer.models.bundled import bundled
from mona_infer.models.file import Model, read_model
from mona_infer.models.find import NAMES, find_model
from mona_infer.segmenter import Segmenter
from mona_infer.serving.state import State, read_json, write_json
from mona_infer.task import LabelClass

UNSENDABLE = re.compile(r"[^\w.-]+")
KEPT = 2  # engines in memory: the model in use and one to compare with


class Models:
    def __init__(self, state: State, given: Path | None, runs: Path, *, engine: str = AUTO, threads: int = 0) -> None:
        self._file, self._runs = state.folder / "model.json", runs
        self._engine, self._threads = engine, threads
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], Model]] = {}  # name -> size and time of the file, content
        self._ready: OrderedDict[str, Segmenter] = OrderedDict()  # by seal
        self._given: tuple[str, Path] | None = None
        found = _found(given, runs)
        if found is not None:
            name = next((name for name, path in self.paths().items() if path.resolve() == found.resolve()), None)
            self._given = (name or _name(found), found)
        chosen = (read_json(self._file) or {}).get("name") if given is None else None
        self._current = chosen if isinstance(chosen, str) and chosen in self.paths() else None
        self._unasked = given is None and self._current is None and not os.environ.get("MONA_MODEL")
        if self._current is None and self._given is not None:
            self._current = self._given[0]

    @property
    def current(self) -> str | None:
        return self._current

    def paths(self) -> dict[str, Path]:
        """Name -> file: what was given at the start, every export under runs/, and what came with mona."""
        came = {card.name: card.model for card in bundled()}
        return dict([self._given] if self._given else []) | came | self._of_runs()

    def _of_runs(self) -> dict[str, Path]:
        files = sorted(self._runs.glob(f"[!.]*/{NAMES}"))
        return {_name(path): path for path in files}

    def use(self, name: str) -> Model:
        """Switch to a model; it is read first, so that a damaged one is refused."""
        model = self.model(name)
        self._current = name
        write_json(self._file, {"name": name})
        return model

    def use_only_for(self, classes: tuple[LabelClass, ...] | None) -> None:
        """A model that nobody chose, the newest or the one that came with mona, must be one for these classes."""
        if classes is not None and self._current is not None and self._unasked:
            here, there = ([c.name.lower() for c in found] for found in (classes, self.model().task.classes))
            if here != there:
                self._current = None
        if classes is not None and self._current is None and self._unasked:
            names = [c.name.lower() for c in classes]
            found = (
                card.name for card in bundled() if [c.name.lower() for c in self.model(card.name).task.classes] == names
            )
            self._current = next(found, None)

    def model(self, name: str | None = None) -> Model:
        name = name or self._current
        if name is None:
            raise InputError("there is no model yet: train one, or start `mona serve` with --model FILE")
        path = self.paths().get(UNSENDABLE.sub("_", name))
        if path is None:
            raise InputError(f"there is no model named {name!r}; choose one of {', '.join(self.paths())}")
        with self._lock:
            found = path.stat()
            mark = found.st_size, found.st_mtime_ns
            if name not in self._read or self._read[name][0] != mark:
                self._read[name] = mark, read_model(path)
            return self._read[name][1]

    def segmenter(self, model: Model) -> Segmenter:
        """Ready to run; called by the segmenting worker alone, since a Segmenter takes one scan at a time."""
        ready = self._ready.pop(model.seal, None)
        if ready is None:
            while len(self._ready) >= KEPT:
                self._ready.popitem(last=False)
            # The pipeline looks at each scan when it is read, and knows whether its job is to be forced.
            ready = Segmenter(model, engine=self._engine, threads=self._threads, force=True)
        self._ready[model.seal] = ready
        return ready


def _name(path: Path) -> str:
    """After its run, or after its file if that is no export; without the blanks that 3D Slicer's plugin cannot send."""
    run = path.resolve().parent.name
    name = {"model": run}.get(path.stem) or (f"{run}.{path.stem[6:]}" if path.stem.startswith("model-") else path.stem)
    return UNSENDABLE.sub("_", name)


def _found(given: Path | None, runs: Path) -> Path | None:
    """What `mona segment` would use; without --model, a server may start without any: a first one can be trained."""
    if given is not None:
        return find_model(given, runs)
    try:
        return find_model(None, runs)
    except InputError:
        return None


def classes_shown(classes: Iterable[LabelClass]) -> list[dict[str, Any]]:
    return [{"id": c.id, "name": c.name, "color": "#{:02x}{:02x}{:02x}".format(*c.colour)} for c in classes]
