"""The settings of a run from what was chosen for it: by the options of `mona train`, or by a row of `mona bench`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mona_infer.errors import InputError
from mona_train.config.presets import preferred_pretraining, preset, with_stages
from mona_train.config.schema import Config
from mona_train.config.toml import with_value
from mona_train.methods.registry import first_stage, stages_of


def chosen(
    preset_name: str,
    *,
    method: str,
    pretrain: str = "default",
    steps: int | None = None,
    principles: str | None = None,
    settings: Iterable[tuple[str, str]] = (),
    **values: Any,
) -> Config:
    """A preset, with what differs from it; `settings` are those of --set, `values` other settings of `Config`."""
    settings = list(settings)
    pretrain = first_stage(method, pretrain, preferred_pretraining(preset_name))
    kinds = {kind.name: kind.Settings for kind in stages_of(method, pretrain)}
    config = with_stages(preset(preset_name, method=method, pretrain=pretrain, **values), kinds)
    if steps is not None:
        config = replace(config, steps=steps)
    if principles is not None:
        config = with_value(config, "acr.principles", principles)
    for key, value in settings:
        config = with_value(config, key, value)
    if config.pixels and any(key == "size" for key, _ in settings):
        raise InputError(
            f"size has no effect here: slices keep their shape, with about {config.pixels} pixels along the long "
            "side; change pixels instead, or add --set pixels=0 to squeeze slices to a size"
        )
    return config


def parsed(setting: str) -> tuple[str, str]:
    """KEY=VALUE as --set takes it."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise InputError(f"expected --set KEY=VALUE, found {setting!r}")
    return key.strip(), value.strip()
