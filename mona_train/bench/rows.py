"""A row of a table: one training run, its settings, and the key that says whether it was measured already."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_train.config.chosen import chosen
from mona_train.config.presets import preferred_pretraining
from mona_train.config.schema import Config
from mona_train.config.toml import to_toml
from mona_train.methods.base import Stage
from mona_train.methods.registry import first_stage, stages_of

VIEWS = ("student", "teacher")
PRESET = "preset"  # principles and views: those of the preset
OWN_COLUMNS = ("dataset", "data", "method", "ratio", "pretrain", "preset", "seed", "steps", "precision")


@dataclass(frozen=True)
class Row:
    """What was asked for; `config` is what it comes to."""

    table: str
    dataset: str
    method: str
    preset: str
    ratio: float | None
    seed: int = 0
    pretrain: str = "default"
    principles: str = PRESET  # separated by commas; empty: none
    views: str = PRESET  # student/teacher, e.g. strong/weak
    steps: int | None = None
    settings: tuple[tuple[str, str], ...] = ()  # of --set
    data: str | None = None

    @cached_property
    def config(self) -> Config:
        pretrain = first_stage(self.method, self.pretrain, preferred_pretraining(self.preset))
        kinds = stages_of(self.method, pretrain)
        fine_tuned = any(kind.name == "acr" for kind in kinds)
        principles = None if self.principles == PRESET else self.principles
        if principles and not fine_tuned:
            raise InputError(f"{self.method} has no principles to choose; only mona's fine-tuning has")
        try:
            return chosen(
                self.preset,
                method=self.method,
                pretrain=self.pretrain,
                steps=self.steps,
                principles=principles if fine_tuned else None,
                settings=[*_views(self.method, kinds, self.views), *self.settings],
                dataset=self.dataset,
                ratio=self.ratio,
                seed=self.seed,
                data=self.data,
            )
        except InputError as error:
            raise InputError(f"{self.table}, row {self.method}: {error}") from error

    @property
    def pretraining(self) -> str:
        """The stage before the last one; "none" where there is only one."""
        kinds = stages_of(self.config.method, self.config.pretrain)
        return kinds[0].name if len(kinds) > 1 else "none"

    @property
    def name(self) -> str:
        """For people: what tells this row from the others of its table."""
        parts = [self.method]
        if self.pretraining != "none":
            parts.append(f"after {self.pretraining}")
        if self.principles != PRESET:
            parts.append(self.principles.replace(",", "+") or "no principle")
        if self.views != PRESET:
            parts.append(self.views)
        parts.append("all labels" if self.ratio is None else f"{100 * self.ratio:g} %")
        return ", ".join([*parts, f"seed {self.seed}"])

    def folder_name(self, key: str) -> str:
        share = "" if self.ratio is None else f"-{100 * self.ratio:g}pc"
        return f"{Path(self.dataset).name}-{self.method}{share}-seed{self.seed}-{key[:8]}"


def _views(method: str, kinds: tuple[type[Stage], ...], views: str) -> list[tuple[str, str]]:
    if views == PRESET:
        return []
    student, slash, teacher = views.partition("/")
    if not slash:
        raise InputError(f"expected views as STUDENT/TEACHER, e.g. strong/weak, found {views!r}")
    stages = [kind.name for kind in kinds if hasattr(kind.Settings, "student")]
    if not stages:
        raise InputError(f"{method} has no views of student and teacher to choose")
    return [(f"{name}.{who}", how) for name in stages for who, how in zip(VIEWS, (student, teacher), strict=True)]


def config_key(config: Config) -> str:
    """Of everything in run.toml but the place of the data, which may move."""
    return _hash(to_toml(replace(config, data=None)))


def row_key(config: Config, content: str, code: str) -> str:
    """Settings, data and code: rows with the same key have the same numbers."""
    return _hash(json.dumps([config_key(config), content, code]))


def pretraining_key(config: Config, content: str, code: str) -> str | None:
    """Of all that the stages before the last depend on; None if there are none."""
    *before, last = stages_of(config.method, config.pretrain)
    if not before:
        return None
    stages = {name: stage for name, stage in config.stages.items() if name != last.name}
    return row_key(replace(config, stages=stages), content, code)


def changed(config: Config) -> dict[str, Any]:
    """The settings that differ from the preset's, but for those that have a column of their own."""
    try:
        plain = chosen(config.preset, method=config.method, pretrain=config.pretrain, dataset=config.dataset)
    except InputError:  # a preset of another version
        return {}
    now, before = _flat(config), _flat(plain)
    own = (*OWN_COLUMNS, "stages.acr.principles", *(f"stages.{n}.{w}" for n in config.stages for w in VIEWS))
    differing = {key: value for key, value in now.items() if key not in own and value != before.get(key)}
    return {key.removeprefix("stages."): value for key, value in differing.items()}


def views_of(config: Config) -> tuple[str | None, str | None]:
    """Which views student and teacher see, in the last stage that has a choice."""
    for stage in reversed(config.stages.values()):
        if hasattr(stage, "student"):
            return stage.student, stage.teacher
    return None, None


def principles_of(config: Config) -> list[str]:
    return list(config.stages["acr"].principles) if "acr" in config.stages else []


def _flat(config: Config) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(table: dict[str, Any], path: str) -> None:
        for key, value in table.items():
            name = f"{path}.{key}" if path else key
            if isinstance(value, dict):
                walk(value, name)
            else:
                found[name] = list(value) if isinstance(value, tuple) else value

    walk(asdict(config), "")
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
