"""The demo's trainings: their settings, and one of them from its first step to its last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from mona_train.cli.side_by_side import train_side_by_side
from mona_train.config.presets import preferred_pretraining, preset, with_stages
from mona_train.config.schema import Batch, Config, Every
from mona_train.data.adapters import locate
from mona_train.data.cache import Cache
from mona_train.data.contrast import with_contrast
from mona_train.data.resolved import Resolved, resolve
from mona_train.engine.first_look import with_first_look
from mona_train.methods.registry import first_stage, stages_of

if TYPE_CHECKING:
    from mona_train.engine.validate import Scored

LABELLED = 3 / 24  # patients of the phantom's training set
PIXELS = 80  # long side of a slice


def settings(method: str, seed: int, steps: int) -> Config:
    pretrain = first_stage(method, "default", preferred_pretraining("quick"))
    asked = {"method": method, "pretrain": pretrain, "ratio": LABELLED, "seed": seed, "pixels": PIXELS, "steps": steps}
    config = preset("quick", dataset="phantom", precision="32-true", **asked)  # the same digits on every processor
    every = Every(validate=max(1, steps // 4), log=10, save=steps)
    kinds = {kind.name: kind.Settings for kind in stages_of(method, pretrain)}
    config = replace(config, width=0.5, every=every, pretrain_share=0.5, batch=Batch(6, 6))
    return with_stages(config, kinds)


def train_all(runs: dict[Path, Config], cache: Path) -> None:
    """Side by side where there are cores for it."""
    from mona_kernels.native import cores

    first = next(iter(runs.values()))
    resolved(first, cache)  # the trainings share a first look, which is then there for all of them
    if cores() > 1:
        train_side_by_side(train, {run: (config, run, cache) for run, config in runs.items()}, first.steps)
    else:
        for run, config in runs.items():
            print(f"training {run.name}")
            train(config, run, cache)


def train(config: Config, folder: Path, cache: Path) -> None:
    from lightning_fabric import Fabric

    from mona_train.engine.session import Data, Session
    from mona_train.run.folder import write_config

    found, look = resolved(config, cache)
    prepared = Cache.open(cache)
    data = Data(config, with_contrast(found, prepared), prepared, look)
    session = Session(config, folder, data, Fabric(devices=1))
    write_config(config, folder)
    data.write(folder)
    session.run()


def resolved(config: Config, cache: Path) -> tuple[Resolved, nn.Module | None]:
    adapter, source = locate("phantom")
    prepared = Cache.open(cache)
    return with_first_look(config, resolve(config, adapter, source, prepared), prepared)


def on_test_cases(run: Path) -> tuple[dict[str, Any], list[Scored]]:
    """The results of a finished run, and what its network answers on the test patients."""
    import torch

    from mona_train.engine.validate import validate
    from mona_train.run.load import load_run

    trained = load_run(run)
    data = trained.require_data()
    cases = [case for case in data.cases() if case.name in data.split.test and case.label]
    return trained.results, validate(trained.network, cases, trained.task, torch.device("cpu"), trained.look)
