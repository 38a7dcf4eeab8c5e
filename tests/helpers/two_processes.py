"""Twenty steps of MONA on a made-up data set, in two processes that write down all they do.

    torchrun --standalone --nproc-per-node 2 tests/helpers/two_processes.py FOLDER [VARIANT ...]

leaves FOLDER/VARIANT-RANK.pt.  tests/train/engine/test_processes.py does the same steps in one process and compares.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from helpers.caches import cache_of, cases
from helpers.steps import blobs, painted, seeded
from mona_infer.task import CARDIAC
from mona_kernels.ops import OPS
from mona_kernels.ops.sampling import Census
from mona_train.config.schema import Batch, Config, Optimiser
from mona_train.data.cache import Cache
from mona_train.data.split import Split, split
from mona_train.engine import trainer as trainer_module
from mona_train.engine.distributed import ManyProcesses
from mona_train.engine.trainer import Trainer
from mona_train.methods.acr import ACR
from mona_train.methods.base import Step
from mona_train.methods.glcon import GLCon
from mona_train.run.checkpoint import weights_hash

SIZE, PATIENTS, SLICES = 32, 4, 7  # 14 labelled and 14 unlabelled slices, 8 a step: epochs end in mid-step
OPTIMISERS = {"sgd": Optimiser(weight_decay=1e-2), "adamw": Optimiser(kind="adamw", lr=1e-3)}


def config_of(optimiser: str) -> Config:
    """8 steps of GLCon and 12 of ACR.  Every bank fills in mid-step, is waited for, and goes round."""
    return Config(
        dataset="mine",
        size=(SIZE, SIZE),
        width=0.25,
        steps=20,
        pretrain_share=0.4,
        optimiser=OPTIMISERS[optimiser],
        batch=Batch(2, 2),
        stages={
            "glcon": GLCon.Settings(bank=20, windows=2),
            # 0.3: untrained networks are never surer, and pseudo-labels should count
            "acr": ACR.Settings(bank=10, neighbours=3, queries=32, keys=16, ring=700, sure=0.3, likely=0.3),
        },
    )


def data_of() -> tuple[Cache, Split]:
    """No two slices alike, so that a slice can be recognised by its pixels."""
    labels = blobs(PATIENTS * SLICES, (SIZE, SIZE))
    images = 0.9 * painted(labels)[:, 0] + 0.1 * torch.rand(labels.shape, generator=seeded())
    cache = cache_of(cases(PATIENTS, 1, slices=SLICES))
    pixels, classes = (65535 * images).numpy().astype(np.uint16), labels.numpy().astype(np.uint8)
    cache = replace(cache, images=pixels, labels=classes, task=replace(CARDIAC, size=(SIZE, SIZE)))
    return cache, split(cache, 0.5)


# ---- processes that do something wrong, each in one point, none in how many messages it sends


class Recorded(ManyProcesses):
    """As they are; what class statistics came out is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: list[Tensor] = []

    def total(self, numbers: Tensor) -> Tensor:
        self.totals.append(super().total(numbers))
        return self.totals[-1]


class LocalGather(Recorded):
    def gather(self, rows: Tensor) -> Tensor:
        return torch.cat([rows.detach()] * self.size)


class LocalTotal(Recorded):
    def total(self, numbers: Tensor) -> Tensor:
        self.totals.append(self.size * numbers.detach())
        return self.totals[-1]


class LocalAverage(Recorded):
    def average_(self, tensors: Any) -> None:
        pass


VARIANTS: dict[str, type[Recorded]] = {
    "sgd": Recorded,
    "adamw": Recorded,
    "local-gather": LocalGather,
    "local-total": LocalTotal,
    "local-average": LocalAverage,
}


# ---- writing down


def parameters_of(networks: torch.nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in networks.named_parameters()}


def gradients_of(networks: torch.nn.Module) -> dict[str, Tensor]:
    """Of what has one: that some have none is part of what must agree."""
    return {name: p.grad.clone() for name, p in networks.named_parameters() if p.grad is not None}


def statistics_of(networks: torch.nn.Module) -> dict[str, Tensor]:
    """Running means and variances of batch norm."""
    return {name: b.detach().clone() for name, b in networks.named_buffers() if "running" in name}


def memory_of(stage: torch.nn.Module) -> dict[str, Tensor]:
    return {name: b.detach().clone() for name, b in stage.state_dict().items()}


def recording_queries(into: list[Tensor]) -> Any:
    """Which pixels ask in the contrast."""
    real = OPS["native"]

    def census(*args: Any, **more: Any) -> Census:
        found = real.census(*args, **more)
        into.append(found.queries.clone())
        return found

    return mock.patch.dict(OPS, native=real._replace(census=census))


def record(fabric: Fabric, variant: str) -> dict[str, Any]:
    """What this process did: `steps`, one entry each, and what it ended with."""
    cache, parts = data_of()
    trainer = Trainer(config_of(variant if variant in OPTIMISERS else "sgd"), cache, parts, cache.task, fabric)
    processes = trainer.processes = VARIANTS[variant]()
    seen: dict[str, Any] = {}
    queries: list[Tensor] = []

    def step_of(**given: Any) -> Step:
        step = Step(**given)
        assert step.unlabelled is not None
        seen["labelled"], seen["unlabelled"] = step.labelled.images, step.unlabelled.images
        seen["augmentation"], seen["dropout"] = step.generator.initial_seed(), torch.initial_seed()
        return step

    def before_update(*_: Any) -> None:
        seen["gradients"] = gradients_of(trainer.student)
        seen["gradients hash"] = weights_hash(seen["gradients"])

    steps = []
    hook = register_optimizer_step_pre_hook(before_update)
    with mock.patch.object(trainer_module, "Step", step_of), recording_queries(queries):
        while not trainer.finished:
            losses = trainer.step()
            last_of_stage = trainer.span is not None and trainer.number == trainer.span.stop
            steps.append(
                {
                    **seen,
                    "losses": losses,
                    "totals": processes.totals[:-1],  # the last one counts who has gradients
                    "queries": queries[:],
                    "hashes": {
                        "student": weights_hash(parameters_of(trainer.student)),
                        "teacher": weights_hash(parameters_of(trainer.teacher)),
                        "memory": weights_hash(memory_of(trainer.stage)),
                        "gradients": seen.pop("gradients hash"),
                    },
                    "memory": memory_of(trainer.stage) if last_of_stage else {},
                }
            )
            processes.totals.clear()
            queries.clear()
    hook.remove()
    own = statistics_of(trainer.student) | statistics_of(trainer.teacher)
    trainer.synchronise()
    shared = statistics_of(trainer.student) | statistics_of(trainer.teacher)
    return {
        "steps": steps,
        "student": parameters_of(trainer.student),
        "teacher": parameters_of(trainer.teacher),
        "statistics": {"own": own, "shared": shared},
    }


def main(folder: Path, variants: list[str]) -> None:
    torch.set_num_threads(1)  # sums in the same order as in the test's process
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    for variant in variants or VARIANTS:
        found = record(fabric, variant)
        if fabric.global_rank > 0 or variant not in OPTIMISERS:  # 100 MB that must be the same, or do not matter
            for step in found["steps"]:
                del step["gradients"]
        torch.save(found, folder / f"{variant}-{fabric.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
