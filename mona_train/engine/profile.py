"""`mona train --profile`: where the time of one step goes.

Stages do not know about it.  U-Nets are timed by hooks, everything else by wrapping the functions that a stage calls:
those of mona_train.losses by module, those of mona_train.augment and methods.views as "augmentation", kernels by name.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mona_train.augment import Fitted, Published
from mona_train.engine.trainer import Trainer
from mona_train.methods.base import Losses
from mona_train.networks.unet import UNet, UNetOutput

METHODS, VIEWS = "mona_train.methods.", "mona_train.methods.views"
PASS = " pass"  # suffix of the parts that are nothing but a U-Net
WARM, STEPS = 2, 8
PASSES_TRIED, PATIENCE = 12, 10.0  # to estimate the time of a run: at most this many passes or seconds


class Clock:
    """Seconds per part.  Of nested parts only the outermost is timed, so that the parts add up to the step."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._device = device
        self._inside = 0
        self._start = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end(name)

    def begin(self) -> None:
        self._inside += 1
        if self._inside == 1:
            self._start = self._now()

    def end(self, name: str) -> None:
        self._inside -= 1
        if self._inside == 0:
            self.seconds[name] += self._now() - self._start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*args, **options)

        return run


class _Passes:
    """Times a U-Net and cuts the graph behind it, so that its backward pass is timed separately from the losses'."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cuts: list[tuple[str, list[Tensor], list[Tensor]]] = []

    def watch(self, network: UNet, who: str) -> list[Any]:
        def before(*_: Any) -> None:
            self._clock.begin()

        def after(_: Any, inputs: Any, output: UNetOutput) -> UNetOutput:
            earlier = sum(name.startswith(who) for name, _, _ in self._cuts)
            name = f"{who}{'' if earlier == 0 else f', {earlier + 1}.'}{PASS}"
            self._clock.end(name)
            return self._cut(name, output) if torch.is_grad_enabled() else output

        return [network.register_forward_pre_hook(before), network.register_forward_hook(after)]

    def _cut(self, name: str, output: UNetOutput) -> UNetOutput:
        tensors = [output.logits, *output.features]
        leaves = [t.detach().requires_grad_() for t in tensors]
        self._cuts.append((name, tensors, leaves))
        return UNetOutput(leaves[0], leaves[1:])

    def backward(self, losses: Losses) -> None:
        for name, loss in losses.items():
            with self._clock.part(f"{name}, backward"):
                loss.backward(retain_graph=True)
        for name, tensors, leaves in reversed(self._cuts):
            with self._clock.part(name):
                used = [(t, leaf.grad) for t, leaf in zip(tensors, leaves, strict=True) if leaf.grad is not None]
                torch.autograd.backward([t for t, _ in used], [g for _, g in used])
        self._cuts.clear()


@contextmanager
def watched(trainer: Trainer, clock: Clock) -> Iterator[None]:
    """Within this context, steps of the trainer's stage are timed by `clock`."""
    passes, stage = _Passes(clock), trainer.stage
    with ExitStack() as stack:
        for who, networks in (("student", trainer.student), ("teacher", trainer.teacher)):
            for network in (n for n in networks.values() if isinstance(n, UNet)):
                for hook in passes.watch(network, who):
                    stack.callback(hook.remove)
        for kind in type(stage).__mro__:
            for module in _modules_of(kind):
                stack.enter_context(mock.patch.dict(vars(sys.modules[module]), _timed(module, clock)))
        for augmentation in (Published, Fitted):
            changed = clock.timed("augmentation", augmentation.appearance)
            stack.enter_context(mock.patch.object(augmentation, "appearance", changed))
        for child in stage.children():
            if type(child).__module__.startswith("mona_train.losses"):
                name = type(child).__name__.lower()
                stack.enter_context(mock.patch.object(child, "forward", clock.timed(name, child.forward)))
        if hasattr(stage, "ops"):
            ops = {name: clock.timed(name, op) for name, op in stage.ops._asdict().items()}
            stack.enter_context(mock.patch.object(stage, "ops", stage.ops._replace(**ops)))
        stack.enter_context(mock.patch.object(trainer, "backward", passes.backward))
        stack.enter_context(mock.patch.object(trainer, "optimise", clock.timed("optimiser", trainer.optimise)))
        yield


def _modules_of(kind: type) -> set[str]:
    """The module of a stage, and those beside it that it takes functions from; what views do counts as a whole."""
    if not kind.__module__.startswith(METHODS):
        return set()
    functions = [value for value in vars(sys.modules[kind.__module__]).values() if isinstance(value, FunctionType)]
    beside = {f.__module__ for f in functions if f.__module__.startswith(METHODS)}
    return ({kind.__module__} | beside) - {VIEWS}


def _timed(module: str, clock: Clock) -> dict[str, Any]:
    """The loss and augmentation functions that a stage's module imports, each wrapped with the clock."""
    found = {}
    for name, value in vars(sys.modules[module]).items():
        if isinstance(value, FunctionType):
            home = value.__module__
            if home.startswith("mona_train.losses."):
                found[name] = clock.timed(home.rpartition(".")[2], value)
            elif home.startswith("mona_train.augment") or home == VIEWS:
                found[name] = clock.timed("augmentation", value)
    return found


def profile(trainer: Trainer) -> dict[str, float]:
    """Median seconds of each part, over some steps of the run's last stage."""
    span = trainer.spans[-1]
    found: list[dict[str, float]] = []
    for n in range(WARM + STEPS):
        trainer.number = span.first + n % span.steps  # a shorter stage repeats some steps
        trainer.prepare_step()
        clock = Clock(trainer.device)
        with watched(trainer, clock):
            start = time.perf_counter()
            trainer.step()
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
        kind = "U-Net" if name.endswith(PASS) else ""
        table.add_row(name, f"{1e3 * seconds:.0f}", f"{100 * seconds / whole:.1f} %", kind)
    rest = sum(seconds for name, seconds in parts.items() if not name.endswith(PASS))
    table.add_section()
    table.add_row("whole step", f"{1e3 * whole:.0f}", "100 %", "")
    table.add_row("not a U-Net pass", f"{1e3 * rest:.0f}", f"{100 * rest / whole:.1f} %", "")
    Console(highlight=False).print(table)


def seconds_per_pass(trainer: Trainer) -> float:
    """One forward and backward pass of a batch through the U-Net, with random slices and a separate network.

    In the run's precision, and repeated until it gets no faster: the first passes compile kernels and allocate memory.
    """
    batch = trainer.config.batch
    state = torch.get_rng_state()  # an estimate must not change what is trained
    images: Any = torch.rand(batch.labelled + batch.unlabelled, 1, *trainer.task.input_size, device=trainer.device)
    network = trainer.fresh_network()
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
    """Whether the fastest time was reached twice, or enough passes were tried."""
    if len(times) < 3:
        return False
    best, second = sorted(times)[:2]
    return second <= 1.1 * best or len(times) >= PASSES_TRIED or sum(times) > PATIENCE
