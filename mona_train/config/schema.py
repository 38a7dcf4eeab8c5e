"""What a run is made of, as typed values; saved whole to run.toml, from which it can be run again.

`presets` has the values that each preset gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from mona_infer.errors import InputError
from mona_kernels import Kernels
from mona_train.config.toml import within

LARGEST = 4096  # side of a slice
STRIDE = 16  # the U-Net halves a slice four times
WIDEST = 16  # times the paper's U-Net: 4,096 channels at its deepest level, 2 GB of weights
AugmentationKind = Literal["published", "fitted"]  # here, because mona_train.augment imports torch
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")  # of lightning-fabric those that keep weights in 32 bit


@dataclass(frozen=True)
class Optimiser:
    """Learning rate: linear warm-up, held for a while, then lr (1 - t/T)^power."""

    kind: Literal["sgd", "adamw", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9  # of SGD (Nesterov's where the stage says so), and Adam's first beta
    beta2: float = 0.999  # Adam's second
    weight_decay: float = 1e-4
    power: float = 0.9
    warmup: float = 0.0  # share of the time
    hold: float = 0.0  # share of the time, with the warm-up
    over: Literal["stage", "run"] = "stage"  # what the time is: each stage has its own schedule, or all share one


@dataclass(frozen=True)
class Batch:
    """Slices a step, in each process; a method without unlabelled data takes the sum of both."""

    labelled: int = 3
    unlabelled: int = 3


@dataclass(frozen=True)
class Every:
    """How often, in steps."""

    validate: int = 200
    log: int = 10
    save: int = 200


@dataclass(frozen=True)
class Config:
    """One training run."""

    dataset: str
    method: str = "mona"
    data: str | None = None  # the data set's folder; None: found by name
    ratio: float | None = None  # share of training patients whose labels are used; None: all
    pretrain: str = "default"  # the method's own first stage, "none", or the name of a stage
    preset: str = "paper"
    seed: int = 0
    split_seed: int | None = None  # None: the published split where there is one
    size: tuple[int, int] = (256, 256)  # that slices are squeezed to, rows x columns
    pixels: int = 0  # instead: long side of a typical slice; every slice keeps its shape, at one scale
    window: str = "full"  # what the network sees of a slice: full, auto (where the organ is), or rows x columns
    augmentation: AugmentationKind = (
        "published"  # "fitted": stronger, for slices with one orientation and the organ at the centre
    )
    mirrors: bool = False  # mirror images and quarter turns in "fitted"; "published" always has them
    width: float = 1.0  # multiplies the U-Net's channels
    steps: int = 60_000  # of all stages together
    pretrain_share: float = 0.5  # of the steps
    ema: float = 0.99
    average: bool = False  # validate, hand over to the next stage and export the EMA network instead of the student
    post_process: bool = False  # keep the largest piece of a class, fill its holes, where that helps on validation
    precision: str = "32-true"
    kernels: Kernels = "native"  # "reference": plain PyTorch, to compare with
    optimiser: Optimiser = field(default_factory=Optimiser)
    batch: Batch = field(default_factory=Batch)
    every: Every = field(default_factory=Every)
    stages: dict[str, Any] = field(default_factory=dict)  # the settings of each stage, by its name

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch.labelled < 1 or min(vars(self.every).values()) < 1:
            raise InputError(
                "steps, batch.labelled and the intervals of [every] must be 1 or greater, batch.unlabelled 0 or greater"
            )
        if self.batch.unlabelled < 0:
            raise InputError(f"batch.unlabelled must be 0 or greater, found {self.batch.unlabelled}")
        if min(self.seed, self.split_seed or 0) < 0:
            raise InputError(f"the seed must be 0 or greater, found {min(self.seed, self.split_seed or 0)}")
        if min(vars(self.optimiser)[name] for name in ("lr", "momentum", "beta2", "weight_decay")) < 0:
            raise InputError("the learning rate, momentum, beta2 and weight decay must be 0 or greater")
        if not 0 <= self.ema <= 1:
            raise InputError(f"ema must be from 0 to 1, found {self.ema}")
        if self.precision not in PRECISIONS:
            raise InputError(f"expected a precision among {', '.join(PRECISIONS)}, found {self.precision!r}")
        if self.kernels not in get_args(Kernels):
            raise InputError(f"expected kernels among {', '.join(get_args(Kernels))}, found {self.kernels!r}")
        if self.augmentation not in get_args(AugmentationKind):
            known = ", ".join(get_args(AugmentationKind))
            raise InputError(f"expected an augmentation among {known}, found {self.augmentation!r}")
        if any(side % 16 for side in self.size):
            raise InputError(f"expected a size in multiples of 16 (the U-Net halves it four times), found {self.size}")
        if not all(16 <= side <= LARGEST for side in self.size):
            raise InputError(f"size must be from 16x16 to {LARGEST}x{LARGEST}, found {self.size[0]}x{self.size[1]}")
        if self.pixels and not STRIDE <= self.pixels <= LARGEST:
            raise InputError(f"pixels must be from {STRIDE} to {LARGEST}, or 0 to squeeze slices, found {self.pixels}")
        if not 0 < self.width <= WIDEST:
            raise InputError(f"width must be above 0 and at most {WIDEST}, found {self.width:g}")
        within(self.optimiser, "optimiser", 0, 1, "warmup", "hold")
        within(self.optimiser, "optimiser", 0, None, "power")
        for name in ("momentum", "beta2"):
            if vars(self.optimiser)[name] >= 1:
                raise InputError(f"optimiser.{name} must be below 1, found {vars(self.optimiser)[name]:g}")
        if not 0 <= self.pretrain_share < 1:
            raise InputError(f"pretrain_share must be 0 or greater and below 1, found {self.pretrain_share}")
