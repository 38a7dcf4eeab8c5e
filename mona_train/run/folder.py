"""The run's folder: run.toml, complete enough to run it again."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.atomic import TEMPORARY, write_text
from mona_train.config.schema import Config
from mona_train.config.toml import from_toml, to_toml
from mona_train.methods.registry import stages_of

CONFIG = "run.toml"


def write_config(config: Config, folder: Path) -> None:
    write_text(folder / CONFIG, to_toml(config))


def clear(folder: Path) -> None:
    """Remove what processes that were killed in the middle of writing left behind."""
    for place in (folder, folder / "checkpoints", folder / "pictures"):
        for path in place.iterdir() if place.is_dir() else ():
            if path.is_file() and TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)


def read_config(folder: Path) -> Config:
    path = folder / CONFIG
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
        kinds = stages_of(str(found.get("method", "mona")), str(found.get("pretrain", "default")))
    except OSError as error:
        raise InputError(f"{folder} is not the folder of a run: it has no {CONFIG}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    return from_toml(text, Config, source=str(path), tables={f"stages.{kind.name}": kind.Settings for kind in kinds})
