"""Every method and pre-training in the registry, as runs of a few steps; as a program, in two processes.

    torchrun --standalone --nproc-per-node 2 tests/helpers/every_method.py FILE

trains each for some steps and writes to FILE.RANK, as JSON, what each process has at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

from helpers.small_runs import TASK, small_cache, small_config, small_split
from mona_train.config.schema import Config
from mona_train.engine.distributed import ManyProcesses
from mona_train.engine.trainer import Trainer
from mona_train.methods.registry import methods, pretraining
from mona_train.run.checkpoint import weights_hash

SAMPLE = ("mona", "glcon", "unet-l", "mean-teacher", "cps", "dan", "gcl", "moco+acr", "plc")  # for every day
EXPORTED = ("cps",)  # every day: the exporter takes seconds, and this method has two networks to choose from


def names() -> list[str]:
    """Methods, and every pre-training before ACR as NAME+acr."""
    return [*methods(), *(f"{name}+acr" for name in pretraining())]


def every(names: Iterable[str], sample: tuple[str, ...] = SAMPLE) -> list[Any]:
    """For `parametrize`: the sample every day, all of them in `make test-all`."""
    return [name if name in sample else pytest.param(name, marks=pytest.mark.full) for name in names]


def stages(name: str) -> tuple[str, str]:
    """Method and pre-training."""
    first, plus, _ = name.partition("+")
    return ("mona", first) if plus else (name, "default")


def config_of(name: str, steps: int = 12, **values: object) -> Config:
    """With what the presets have: the average answers, and the schedule spans the run."""
    method, pretrain = stages(name)
    return small_config(method, pretrain=pretrain, steps=steps, average=True, **values)


def main(file: Path) -> None:
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    found = {}
    for name in names():
        trainer = Trainer(config_of(name, steps=6), small_cache(), small_split(), TASK, fabric)
        assert isinstance(trainer.processes, ManyProcesses)
        while not trainer.finished:
            trainer.step()
        student, teacher = (
            weights_hash({key: p.detach() for key, p in networks.named_parameters()})
            for networks in (trainer.student, trainer.teacher)
        )
        found[name] = {"student": student, "teacher": teacher, "memory": weights_hash(trainer.stage.state_dict())}
    Path(f"{file}.{fabric.global_rank}").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
