"""What a row will take: seconds from one U-Net pass timed on this machine, memory from the sizes of its activations.

Estimates: a row next to another one, on a cluster or with a method that has heads of its own may take more.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from mona_infer.task import Task
from mona_kernels.native import cores
from mona_train.config.schema import Config
from mona_train.engine.profile import seconds_per_pass
from mona_train.engine.trainer import Trainer

COPIES = 5  # of every weight: student, teacher, gradient, two moments
# Bytes of an activation and its gradient, in half precision too.  Preset cpu (bf16) on ACDC: 1.2 GB are estimated for
# unet-f and 1.3 GB for mona, and 1.3 and 1.4 GB were measured.
VALUE = 8


@dataclass(frozen=True)
class Estimate:
    seconds: float
    before: float  # of the seconds, those of the stages before the last, which rows may share
    memory: float  # bytes


class Estimates:
    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._seconds: dict[tuple[Any, ...], float] = {}

    def of(self, config: Config, task: Task) -> Estimate:
        trainer = _trainer(config, task)
        *before, last = (trainer.cost(span) for span in trainer.spans)
        most = max(trainer.cost(span, 1) for span in trainer.spans)
        key = task.input_size, config.batch, config.width, config.precision, len(task.classes)
        if key not in self._seconds:
            self._seconds[key] = self._timed(trainer)
        each = self._seconds[key]
        return Estimate((sum(before) + last) * each, sum(before) * each, _memory(trainer, most))

    def _timed(self, trainer: Trainer) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            return seconds_per_pass(trainer)
        finally:
            torch.set_num_threads(before)


def passes_of(config: Config, task: Task) -> float:
    """The work of a row, in passes; takes no time."""
    trainer = _trainer(config, task)
    return sum(trainer.cost(span) for span in trainer.spans)


def _trainer(config: Config, task: Task) -> Trainer:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would announce its precision for every row
    precision: Any = config.precision
    nowhere: Any = None  # no cache and no split: no step is taken
    return Trainer(config, nowhere, nowhere, task, Fabric(devices=1, precision=precision))


def busy() -> str:
    """Why estimates are too high now, if they are."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return ""
    return f"this machine is busy (load {load:.0f} on {cores()} cores), so they are too high" if load > cores() else ""


def _memory(trainer: Trainer, passes: float) -> float:
    """Of one process: what this one takes already, weights, and what a step keeps for its backward pass."""
    network, batch = trainer.fresh_network(), trainer.config.batch
    weights = COPIES * sum(4 * p.numel() for p in network.parameters())
    kept = _activations(network, (batch.labelled + batch.unlabelled, 1, *trainer.task.input_size))
    unit = 1 if sys.platform == "darwin" else 1024
    base = 0 if trainer.device.type == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return float(base + weights + VALUE * kept * max(1.0, passes))


def _activations(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Values that the modules of a network give in one pass; computed without computing anything."""
    sizes: list[int] = []

    def count(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.numel())

    network = network.to("meta")
    for module in network.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    network.train()
    network(cast(Any, torch.empty(shape, device="meta")))
    return sum(sizes)
