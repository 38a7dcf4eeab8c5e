"""The command that a model's card gives makes the run's settings again, all of them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mona_infer.cli.main import app
from mona_train.cli import train as command_line
from mona_train.config.command import command_of
from mona_train.config.schema import Config


def typed(command: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """What `mona train` would run."""
    taken: list[Config] = []

    def take(config: Config, *_: Any, **__: Any) -> None:
        taken.append(config)

    monkeypatch.setattr(command_line, "_run", take)
    app(shlex.split(command)[1:], standalone_mode=False)
    return taken[0]


@pytest.mark.parametrize(
    "words",
    [
        "--dataset acdc --preset cpu --ratio 0.05",
        "--dataset acdc --preset quick --method unet-f --seed 3",
        "--dataset acdc --preset quick --method unet-l --ratio 0.05 --steps 400",
        "--dataset acdc --preset cpu --ratio 0.1 --pretrain glcon --split-seed 4 --principles consistency,diversity",
        "--dataset acdc --preset paper --ratio 0.01 --pretrain none --set optimiser.lr=0.002 --set size=192x192",
        "--dataset 'my hearts' --preset cpu --set acr.mix=cutmix --set average=false --set window=96x96 --seed 1",
    ],
)
def test_there_and_back(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = typed(f"mona train {words}", monkeypatch)
    command = command_of(wanted)
    assert typed(command, monkeypatch) == wanted
    assert len(command) < len(f"mona train {words}") + 60, "only what differs from the preset"


def test_where_the_data_lay_is_nobodys_business(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = replace(typed("mona train --dataset acdc --preset cpu", monkeypatch), data=str(tmp_path))
    assert str(tmp_path) not in command_of(config)
