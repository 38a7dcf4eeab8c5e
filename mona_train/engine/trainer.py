"""The training loop: everything that methods share, so that a method is its idea and nothing more.

Nothing a step does depends on an earlier step except through weights, optimiser, EMA teachers and banks, all of
which are in the checkpoint; random draws are keyed by (seed, rank, step).  So a resumed run ends bit-identical (CPU).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_infer.task import Task, centred
from mona_train.augment import augmentation_of
from mona_train.config.schema import Config, Optimiser
from mona_train.data.cache import Cache
from mona_train.data.split import Split
from mona_train.data.stream import step_generator, streams
from mona_train.engine.batch_statistics import BATCHES, recount_
from mona_train.engine.distributed import Distributed, ManyProcesses, SingleProcess
from mona_train.engine.ema_teacher import average_, teacher_of, teaching_mode, warmed_up
from mona_train.engine.optimise import optimiser, rate
from mona_train.methods.base import Losses, Stage, Step, Turn
from mona_train.methods.registry import method_named, stages_of
from mona_train.run import checkpoint

INITIALISATION, DROPOUT = 3, 4  # ids of random streams, in addition to those of mona_train.data.stream


@dataclass(frozen=True)
class Span:
    """A stage and its steps: first <= number < stop."""

    stage: type[Stage]
    first: int
    stop: int

    @property
    def steps(self) -> int:
        return self.stop - self.first


def spans(config: Config) -> list[Span]:
    """The stages in order: as the method shares the steps or, if it does not, those before the last share
    `pretrain_share` of them equally."""
    stages, shares = stages_of(config.method, config.pretrain), method_named(config.method).shares
    before = len(stages) - 1
    if len(shares) != len(stages):  # another pre-training was asked for, or none
        shares = before * (config.pretrain_share / before,) if before else ()
    cuts = [round(sum(shares[:n]) * config.steps) for n in range(before + 1)]
    cuts = [min(cut, config.steps - 1) for cut in cuts]  # the last stage gets at least one step
    return [Span(s, a, b) for s, a, b in zip(stages, cuts, [*cuts[1:], config.steps], strict=True) if b > a]


class Trainer:
    """The networks, optimisers and memory of the current stage, and how to take the next step."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        split: Split,
        task: Task,
        fabric: Fabric,
        corners: Mapping[str, tuple[int, int]] | None = None,
        levels: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.config, self.task, self.fabric = config, task, fabric
        self._corners, self._levels = corners, levels
        self.processes: Distributed = ManyProcesses() if fabric.world_size > 1 else SingleProcess()
        self.device = fabric.device
        self._cache, self._split = cache, split
        self.spans = spans(config)
        self._check_handover()
        self.number = 0  # of the next step
        self.weights: dict[str, float] = {}  # of the last step's losses
        self.span: Span | None = None
        self.student, self.teacher = nn.ModuleDict(), nn.ModuleDict()

    @property
    def finished(self) -> bool:
        return self.number >= self.config.steps

    @property
    def network(self) -> nn.Module:
        """The network that predicts: the result of the run."""
        return self.answering[self.predicts]

    @property
    def answering(self) -> nn.ModuleDict:
        """The networks that are validated, and that the next stage starts from."""
        return self.teacher if self.config.average else self.student

    @property
    def predicts(self) -> str:
        return self.spans[-1].stage.predicts

    @property
    def parts(self) -> dict[str, nn.Module]:
        """Everything that has weights or memory."""
        return {"student": self.student, "teacher": self.teacher, "memory": self.stage}

    @property
    def rate(self) -> float:
        """The learning rate of the first optimiser in the last step."""
        return float(self._turns[0][2].param_groups[0]["lr"])

    @property
    def upcoming(self) -> Span:
        """The stage of the next step."""
        return next(s for s in self.spans if s.first <= self.number < s.stop)

    def cost(self, span: Span, steps: int | None = None) -> float:
        """Of a stage's steps, or of so many of them, in training passes through the U-Net."""
        return (span.steps if steps is None else steps) * span.stage.passes(self.config.stages[span.stage.name])

    def prepare_step(self) -> Span:
        """Enter the stage of the next step; does nothing within a stage.  `step` calls it."""
        span = self.upcoming
        if self.span != span:
            self._enter(span)
        return span

    def fresh_network(self) -> nn.Module:
        """The network that the run is for, untrained: what a pass costs can be measured on it."""
        return self._stage_of(self.spans[-1].stage).networks()[self.predicts]

    def step(self) -> dict[str, Tensor]:
        """One step of training; returns the losses, unweighted, still on the device."""
        span = self.prepare_step()
        torch.manual_seed(_seed(self.config.seed, DROPOUT, self.processes.rank, self.number))
        batch = Step(
            number=self.number,
            index=self.number - span.first,
            steps=span.steps,
            seed=self.config.seed,
            labelled=self._labelled.batch(self.number),
            unlabelled=self._unlabelled.batch(self.number) if self._unlabelled is not None else None,
            student=self.student,
            teacher=self.teacher,
            generator=step_generator(self.config.seed, self.processes.rank, self.number),
            processes=self.processes,
            window=self.task.input_size,
            augment=augmentation_of(self.config.augmentation, mirrors=self.config.mirrors),
        )
        self.student.train()
        teaching_mode(self.teacher)
        found: Losses = {}
        self.weights = {}
        for turn, settings, optimiser_ in self._turns:
            for group in optimiser_.param_groups:
                whole = settings.over == "run"
                group["lr"] = rate(
                    settings, *((self.number, self.config.steps) if whole else (batch.index, span.steps))
                )
            losses = turn.losses(batch)
            weights = self.stage.weights(batch)
            if not losses:
                raise ValueError(f"stage {self.stage.name} returned no loss")
            self.backward({name: weights.get(name, 1.0) * loss for name, loss in losses.items()})
            self.weights |= {name: weights[name] for name in losses if name in weights}
            self.optimise(turn, optimiser_)
            found |= {name: loss.detach() for name, loss in losses.items()}
        decay = self.stage.ema(batch, self.config.ema)
        if self.config.average:
            decay = warmed_up(decay, batch.index)
        average_(self.teacher, self.student, decay)
        self.number += 1
        return found

    def backward(self, losses: Losses) -> None:
        """Gradients of the sum of the weighted losses; --profile computes them one by one."""
        self.fabric.backward(torch.stack([loss.float() for loss in losses.values()]).sum())

    def optimise(self, turn: Turn, optimiser_: Any) -> None:
        self._average_gradients(turn)
        optimiser_.step()
        self.student.zero_grad()  # of all networks: the losses of a turn may reach networks of another

    def _average_gradients(self, turn: Turn) -> None:
        if self.processes.size == 1:
            return
        parameters = [p for name in self._names(turn) for p in self.student[name].parameters()]
        # A parameter that no process used has no gradient, as in a single process: with zeros, it would decay.
        used = self.processes.total(torch.tensor([p.grad is not None for p in parameters], device=self.device).int())
        gradients = []
        for p in (p for p, processes in zip(parameters, used.tolist(), strict=True) if processes):
            if p.grad is None:  # unused in this process, used in another: all must send the same shapes
                p.grad = torch.zeros_like(p)
            gradients.append(p.grad)
        self.processes.average_(gradients)

    def _names(self, turn: Turn) -> tuple[str, ...]:
        return turn.networks or tuple(self.student)

    def _enter(self, span: Span) -> None:
        """New networks, with the weights of same-named networks of the last stage; teachers are copies of students."""
        number = self.spans.index(span)
        if self.span is not None:
            self.settle()  # what is handed over may be used as it is
        torch.manual_seed(_seed(self.config.seed, INITIALISATION, number))
        kind = span.stage
        self.stage = self._stage_of(kind).to(self.device)
        networks = nn.ModuleDict(self.stage.networks()).to(self.device, memory_format=torch.channels_last)
        for name in set(networks) & set(self.student):
            before = self.answering if name in self.answering else self.student
            networks[name].load_state_dict(before[name].state_dict())
        answers = (kind.predicts, *kind.rivals) if self.config.average else ()
        averaged = dict.fromkeys((*kind.averaged, *answers))
        self.student, self.teacher = networks, teacher_of(networks, tuple(averaged), answers=self.config.average)
        if self.config.precision != "32-true":
            # Only the networks: in half precision a grid is off by up to 1.4 pixels at 256, and losses lose digits.
            for network in (*self.student.values(), *self.teacher.values()):
                for name in ("forward", "encode", "decode"):  # a stage may use a part of a U-Net
                    if hasattr(network, name):
                        setattr(network, name, self._in_half_precision(network, getattr(network, name)))
        self._turns = [self._taking(turn, nesterov=kind.nesterov) for turn in self.stage.turns()]
        self._labelled, self._unlabelled = streams(
            self._cache,
            self._split,
            self.stage.batch(self.config.batch),
            seed=self.config.seed,
            rank=self.processes.rank,
            world_size=self.processes.size,
            device=self.device,
            window=self.task.window,
            corners=self._corners,
            levels=self._levels,
            margin=self._margin,
            everything=kind.everything,
            parts=kind.parts,
        )
        if not kind.unlabelled:
            self._unlabelled = None
        self.span = span

    @property
    def _margin(self) -> int:
        """Pixels around the window that augmentation may bring into it; only a first look leaves any."""
        fits = self.task.first_look and self.config.augmentation == "fitted"
        return max(self.task.input_size) // 4 if fits else 0

    def _in_half_precision(self, network: nn.Module, part: Callable[..., Any]) -> Callable[..., Any]:
        """In training mode only: in evaluation mode a network computes in 32 bit, as the exported model will."""

        def run(*inputs: Any) -> Any:
            with self.fabric.autocast() if network.training else nullcontext():
                return part(*inputs)

        return run

    def _check_handover(self) -> None:
        """Networks with the same name must have the same shape in all stages: checked before the first step."""
        shapes: dict[str, tuple[str, dict[str, torch.Size]]] = {}
        for kind in (span.stage for span in self.spans):
            with torch.device("meta"):  # no memory, no random numbers
                networks = self._stage_of(kind).networks()
            for name, network in networks.items():
                shape = {key: t.shape for key, t in network.state_dict().items()}
                earlier, expected = shapes.get(name, (kind.name, shape))
                if shape != expected:
                    raise InputError(
                        f"the {name} of {earlier} does not fit {kind.name}, which continues from it; "
                        "give both the same settings, or skip pre-training with --pretrain none"
                    )
                shapes[name] = kind.name, shape

    def _stage_of(self, kind: type[Stage]) -> Stage:
        config = self.config
        return kind(
            config.stages[kind.name], classes=len(self.task.classes), width=config.width, kernels=config.kernels
        )

    def _taking(self, turn: Turn, *, nesterov: bool) -> tuple[Turn, Optimiser, Any]:
        settings = replace(self.config.optimiser, **turn.optimiser)
        networks = [self.student[name] for name in self._names(turn)]
        return turn, settings, self.fabric.setup_optimizers(optimiser(settings, networks, nesterov=nesterov))

    def settle(self, networks: nn.ModuleDict | None = None) -> None:
        """Give what may answer the batch statistics of whole slices, which it will be asked about.

        It does not change what is learned: in training, the statistics are those of the batch.
        """
        for name in (self.stage.predicts, *self.stage.rivals) if self.config.average else ():
            recount_((self.answering if networks is None else networks)[name], self._as_asked())

    def _as_asked(self) -> Iterator[Tensor]:
        """Training slices without augmentation, the same ones at any time."""
        size = self.task.input_size
        for number in range(BATCHES):
            streams_ = (s for s in (self._labelled, self._unlabelled) if s is not None)
            images = torch.cat([stream.batch(number).images for stream in streams_])
            yield images[(..., *centred((images.shape[-2], images.shape[-1]), size))]

    def synchronise(self) -> None:
        """Average the batch-norm statistics, which differ between processes, before validating and saving."""
        modules = [m for m in (*self.student.modules(), *self.teacher.modules()) if hasattr(m, "running_mean")]
        self.processes.average_(b for m in modules for b in (m.running_mean, m.running_var) if b is not None)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on, as tensors and numbers."""
        states = {name: checkpoint.pack(name, part.state_dict()) for name, part in self.parts.items()}
        tensors = {name: tensor for state in states.values() for name, tensor in state.items()}
        groups = []
        for n, (_, _, opt) in enumerate(self._turns):
            packed, numbers = checkpoint.pack_optimiser(f"optimiser{n}", opt.state_dict())
            tensors |= packed
            groups.append(numbers)
        return tensors, {"step": self.number, "optimisers": groups}

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Resume from a saved `state`."""
        self.number = facts["step"]
        # a checkpoint taken after a stage's last step contains that stage's networks, from which the next one starts
        ended = next((s for s in self.spans if s.first < self.number <= s.stop), None)
        if ended is None:
            raise InputError(f"the checkpoint does not match this run (step {self.number} of {self.config.steps})")
        self._enter(ended)
        try:
            self.student.load_state_dict(checkpoint.unpack("student", tensors))
            self.teacher.load_state_dict(checkpoint.unpack("teacher", tensors))
            self.stage.load_state_dict(checkpoint.unpack("memory", tensors))
            for n, (_, _, opt) in enumerate(self._turns):
                opt.load_state_dict(checkpoint.unpack_optimiser(f"optimiser{n}", tensors, facts["optimisers"][n]))
        except (KeyError, RuntimeError, ValueError, IndexError) as error:
            raise InputError(f"the checkpoint does not match this run ({str(error).splitlines()[0]})") from error


def _seed(*entropy: int) -> int:
    (state,) = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return int(state) & (2**63 - 1)
