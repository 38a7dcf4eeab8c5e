"""The command that trains a run again, made from its settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from mona_train.config.presets import preferred_pretraining, preset, with_stages
from mona_train.config.schema import Config
from mona_train.methods.registry import first_stage, stages_of

# What has an option of its own; `data` is where the data lay on one machine.
OPTIONS = ("dataset", "method", "data", "ratio", "pretrain", "preset", "seed", "split_seed")


def command_of(config: Config) -> str:
    """`mona train ...` with every setting that is not the preset's."""
    words = ["mona", "train", "--dataset", config.dataset, "--method", config.method, "--preset", config.preset]
    if config.ratio is not None:
        words += ["--ratio", f"{config.ratio:g}"]
    words += ["--seed", str(config.seed)]
    if config.split_seed is not None:
        words += ["--split-seed", str(config.split_seed)]
    pretrain = first_stage(config.method, "default", preferred_pretraining(config.preset))
    if config.pretrain != pretrain:
        words += ["--pretrain", config.pretrain]
        pretrain = config.pretrain
    usual = preset(config.preset, dataset=config.dataset, method=config.method, pretrain=pretrain)
    usual = with_stages(usual, {kind.name: kind.Settings for kind in stages_of(config.method, pretrain)})
    before = dict(_settings(usual, ""))
    for key, value in _settings(config, ""):
        if key not in OPTIONS and value != before.get(key):
            words += ["--set", f"{key.removeprefix('stages.')}={_text(value)}"]
    return shlex.join(words)


def _settings(table: Any, path: str) -> Iterator[tuple[str, Any]]:
    names = [f.name for f in fields(table)] if is_dataclass(table) else list(table)
    for name in names:
        value = getattr(table, name) if is_dataclass(table) else table[name]
        if is_dataclass(value) or isinstance(value, dict):
            yield from _settings(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
