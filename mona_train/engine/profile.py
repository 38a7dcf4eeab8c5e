"""`mona train --profile`: what one step is made of."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mona_train.engine.trainer import Trainer
from mona_train.methods.base import Losses
from mona_train.networks.unet import UNetOutput

PASSES = ("teacher", "student", "equivariance pass")  # parts that are a U-Net and nothing else
WARM, STEPS = 2, 8
PASSES_TRIED, PATIENCE = 12, 10.0  # to estimate a run: at most so many, or so many seconds


class Clock:
    """Times the parts of a step.  Backward passes are parted where a U-Net's output was cut: what lies behind the cut
    is the U-Net's own, what lies before it belongs to the loss that caused it."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._device = device
        self._inside: list[str] = []
        self.cut = _Cuts(self)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._wait()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self.seconds[name] += time.perf_counter() - start

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class _Cuts:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cuts: list[tuple[str, list[Tensor], list[Tensor]]] = []

    def __call__(self, name: str, output: UNetOutput) -> UNetOutput:
        tensors = [output.logits, *output.features]
        leaves = [t.detach().requires_grad_() for t in tensors]
        self._cuts.append((name, tensors, leaves))
        return UNetOutput(leaves[0], leaves[1:])

    def backward(self, losses: Losses) -> None:
        for name, loss in losses.items():
            with self._clock.part(name):
                loss.backward(retain_graph=True)
        for name, tensors, leaves in reversed(self._cuts):
            with self._clock.part(name):
                used = [(t, leaf.grad) for t, leaf in zip(tensors, leaves, strict=True) if leaf.grad is not None]
                torch.autograd.backward([t for t, _ in used], [g for _, g in used])
        self._cuts.clear()


def profile(trainer: Trainer) -> dict[str, float]:
    """Median seconds of each part over some steps of the run's last stage, and of the whole step."""
    span = trainer.spans[-1]
    found: list[dict[str, float]] = []
    for n in range(WARM + STEPS):
        trainer.number = span.first + n % span.steps  # a short run has fewer steps than are measured
        clock = Clock(trainer.device)
        start = time.perf_counter()
        trainer.step(part=clock.part, cut=clock.cut)
        whole = time.perf_counter() - start
        if n >= WARM:
            found.append({**clock.seconds, "other": whole - sum(clock.seconds.values())})
    return {name: median(f.get(name, 0.0) for f in found) for name in found[-1]}


def print_profile(trainer: Trainer) -> None:
    parts = profile(trainer)
    whole = sum(parts.values())
    size = "x".join(map(str, trainer.task.input_size))
    batch = trainer.config.batch
    table = Table(
        title=f"one step of {trainer.spans[-1].stage.name} at {size}, {batch.labelled}+{batch.unlabelled} slices, "
        f"{trainer.device.type}, {torch.get_num_threads()} threads (median of {STEPS})",
        box=box.SIMPLE,
        title_justify="left",
    )
    for column in ("part", "ms", "share", ""):
        table.add_column(column, justify="left" if column in ("part", "") else "right")
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1]):
        kind = "U-Net" if name in PASSES else ""
        table.add_row(name, f"{1e3 * seconds:.0f}", f"{100 * seconds / whole:.1f} %", kind)
    rest = sum(seconds for name, seconds in parts.items() if name not in PASSES)
    table.add_section()
    table.add_row("whole step", f"{1e3 * whole:.0f}", "100 %", "")
    table.add_row("not a U-Net pass", f"{1e3 * rest:.0f}", f"{100 * rest / whole:.1f} %", "")
    Console(highlight=False).print(table)


def seconds_per_pass(trainer: Trainer) -> float:
    """One forward and backward pass of a batch through the U-Net, on made-up slices and a network of its own.

    In the run's precision, and repeated while it still gets faster: the first passes compile kernels and take memory.
    """
    from mona_train.networks.unet import UNet

    batch = trainer.config.batch
    state = torch.get_rng_state()  # an estimate must not change what is trained
    images: Any = torch.rand(batch.labelled + batch.unlabelled, 1, *trainer.task.input_size, device=trainer.device)
    network = UNet(len(trainer.task.classes), width=trainer.config.width)
    network = network.to(trainer.device, memory_format=torch.channels_last)
    torch.set_rng_state(state)
    times: list[float] = []
    while not steady(times):
        start = time.perf_counter()
        with trainer.fabric.autocast():
            loss = network(images).logits.float().mean()
        loss.backward()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        times.append(time.perf_counter() - start)
    return min(times)


def steady(times: list[float]) -> bool:
    """Whether the fastest of these was reached again, or enough was tried."""
    if len(times) < 3:
        return False
    best, second = sorted(times)[:2]
    return second <= 1.1 * best or len(times) >= PASSES_TRIED or sum(times) > PATIENCE
