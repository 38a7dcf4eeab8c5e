"""`Stage`: the idea of a method, and only that.  The trainer owns streams, EMA, optimisers, schedule, logs and files.

A method is a sequence of stages (MONA: GLCon, then ACR).  A stage is one small class in one file of this package:
it names its networks, says which of them have an EMA teacher, and turns a batch into named losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from mona_kernels.ops import Kernels
from mona_train.augment import PUBLISHED, Augmentation
from mona_train.augment.draw import Size
from mona_train.config.schema import Batch
from mona_train.data.stream import LabelledBatch, UnlabelledBatch
from mona_train.engine.distributed import Distributed, SingleProcess
from mona_train.networks.unet import UNet

Losses = dict[str, Tensor]


@dataclass
class Step:
    """Everything a stage may use in one step."""

    number: int  # within the run, over all stages: random draws depend on it
    index: int  # within the stage
    steps: int  # of the stage in total
    seed: int  # of the run
    labelled: LabelledBatch  # as cached: no augmentation yet
    unlabelled: UnlabelledBatch | None  # None if every slice is labelled or the stage does not use any
    student: nn.ModuleDict
    teacher: nn.ModuleDict  # EMA copies of the stage's `averaged` networks; batch statistics, no dropout, no gradient
    generator: Generator  # on the CPU, seeded by (seed, rank, step): draws every augmentation
    processes: Distributed = field(default_factory=SingleProcess)
    window: Size | None = None  # that the networks see, at the centre of larger images; None: all of them
    augment: Augmentation = PUBLISHED

    @property
    def progress(self) -> float:
        """0 at the stage's first step, towards 1 at its last."""
        return self.index / self.steps


@dataclass(frozen=True)
class Turn:
    """One optimiser's part of a step; most stages have a single turn over all their networks."""

    networks: tuple[str, ...]  # names; empty: all
    losses: Callable[[Step], Losses]
    optimiser: dict[str, Any] = field(default_factory=dict)  # settings that differ from the run's optimiser


def adam(lr: float, *, beta2: float = 0.999, weight_decay: float = 0.0, power: float = 0.0) -> dict[str, Any]:
    """An optimiser that a method brings along, whatever the run's is: Adam, at a constant rate or one that falls."""
    schedule = {"power": power, "warmup": 0.0, "hold": 0.0, "over": "stage"}
    return {"kind": "adam", "lr": lr, "momentum": 0.9, "beta2": beta2, "weight_decay": weight_decay, **schedule}


@dataclass(frozen=True)
class Settings:
    """Base of each stage's own settings: `--set STAGE.KEY=VALUE`, kept in run.toml."""


class Stage(nn.Module, ABC):  # type: ignore[misc]
    """The buffers of a stage (memory banks) are saved with the run; its networks belong to the trainer."""

    name: ClassVar[str]
    Settings: ClassVar[type[Settings]] = Settings
    averaged: ClassVar[tuple[str, ...]] = ()
    unlabelled: ClassVar[bool] = True  # False: the whole batch is labelled slices
    everything: ClassVar[bool] = False  # `Step.unlabelled` has the labelled patients' slices too, as images alone
    parts: ClassVar[int] = 0  # `Step.unlabelled` has one slice from each of so many depths of each of its scans
    predicts: ClassVar[str] = "unet"  # the network used by validation, best.safetensors and export
    rivals: ClassVar[tuple[str, ...]] = ()  # others that could predict: at the end validation chooses the best one
    nesterov: ClassVar[bool] = False  # where the optimiser is SGD
    cost: ClassVar[float] = 1.0  # of a step, for the estimate of a run's time; see `passes`

    def __init__(self, settings: Any, *, classes: int, width: float = 1.0, kernels: Kernels = "native") -> None:
        super().__init__()
        self.settings, self.classes, self.width, self.kernels = settings, classes, width, kernels

    @classmethod
    def passes(cls, settings: Any) -> float:
        """What a step costs with these settings, in training passes of the batch through the U-Net."""
        return cls.cost

    def networks(self) -> dict[str, nn.Module]:
        """New networks, in a fixed order (their random initialisation depends on it)."""
        return {"unet": UNet(self.classes, width=self.width)}

    def turns(self) -> tuple[Turn, ...]:
        return (Turn((), self.losses),)

    def weights(self, step: Step) -> dict[str, float]:
        """The weights of losses at this step, ramps included; a loss that is not listed has weight 1."""
        return {}

    def batch(self, asked: Batch) -> tuple[int, int]:
        """Labelled and unlabelled slices of a step, given the run's."""
        return (asked.labelled, asked.unlabelled) if self.unlabelled else (asked.labelled + asked.unlabelled, 1)

    def ema(self, step: Step, decay: float) -> float:
        """The teacher's EMA decay at this step, given the run's."""
        return decay

    @abstractmethod
    def losses(self, step: Step) -> Losses:
        """Named losses, unweighted; the trainer adds them up with `weights`."""


@dataclass(frozen=True)
class Method:
    """What `--method NAME` means."""

    name: str
    stages: tuple[type[Stage], ...]
    summary: str  # one line
    paper: str  # who published it
    year: int
    all_labels: bool = False  # uses every label, whatever --ratio says
    shares: tuple[float, ...] = ()  # of the steps, for each stage; empty: `pretrain_share` for those before the last


@contextmanager
def with_dropout(network: nn.Module) -> Iterator[None]:
    """A teacher that answers with dropout, so that its answers can be compared with each other."""
    silent = [m for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and not m.training]
    try:
        for m in silent:
            m.train()
        yield
    finally:
        for m in silent:
            m.eval()


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Use batch statistics without updating the running ones: for a second pass over the same images (decision 4)."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [m.momentum for m in norms]
    try:
        for m in norms:
            m.momentum = 0.0
        yield
    finally:
        for m, momentum in zip(norms, before, strict=True):
            m.momentum = momentum


def sigmoid_rampup(progress: float) -> float:
    """exp(-5 (1 - t)^2): 0.007 at the start, 1 at the end."""
    return float(torch.exp(torch.tensor(-5.0 * (1.0 - min(max(progress, 0.0), 1.0)) ** 2)))
