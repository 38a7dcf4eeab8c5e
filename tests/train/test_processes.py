"""Two processes do what one would that ran both their batches as micro-batches; both ways to start them work."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dataset_files import decathlon
from lightning_fabric import Fabric
from steps import one_thread
from torch import Tensor
from two_processes import WORLDS, config_of, data_of, gradients_of, memory_of, parameters_of, recording_queries

from mona_train.config import Config
from mona_train.data.stream import step_generator, streams
from mona_train.methods.base import Losses, Step
from mona_train.optimise import average_, optimiser, rate, teaching_mode
from mona_train.run import checkpoint
from mona_train.trainer import Trainer
from mona_train.world import World

BIN = Path(sys.executable).parent
SCRIPT = Path(__file__).parents[1] / "two_processes.py"
TOLERANCE = 1e-5
RANKS = range(2)

Record = dict[str, Any]


# ---- one process, both batches


class Table:
    """Where the shards meet: one at a time runs, and each lays down what the other waits for."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self.laid: dict[int, dict[int, Tensor]] = {}


class Shard(World):
    """One of two micro-batches, as a world of its own; everything goes through Python."""

    size = len(RANKS)

    def __init__(self, rank: int, table: Table) -> None:
        self.rank, self._table, self._count = rank, table, 0
        self.totals: list[Tensor] = []

    def gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self._exchange(rows))

    def total(self, numbers: Tensor) -> Tensor:
        first, second = self._exchange(numbers)
        self.totals.append(first + second)
        return self.totals[-1]

    def average_(self, tensors: Any) -> None:
        raise AssertionError("gradients of micro-batches are added up by autograd")

    def _exchange(self, mine: Tensor) -> list[Tensor]:
        here = self._table.laid.setdefault(self._count, {})
        here[self.rank] = mine.detach().clone()
        self._count += 1
        state = torch.get_rng_state()  # dropout draws from the process's one generator, which the other now seeds
        self._table.turn.notify_all()
        assert self._table.turn.wait_for(lambda: len(here) == self.size, timeout=60), "the other shard is gone"
        torch.set_rng_state(state)
        return [here[rank] for rank in RANKS]


def in_turns(table: Table, jobs: list[Callable[[], Losses]]) -> list[Losses]:
    found: dict[int, Losses] = {}
    failed: list[BaseException] = []

    def run(rank: int) -> None:
        with table.turn:
            try:
                found[rank] = jobs[rank]()
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in RANKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [found[rank] for rank in RANKS]


def in_one_process(config: Config, dropout: list[list[int]]) -> dict[str, Any]:
    """The same steps with one set of weights and one optimiser: two backward passes, each of half a rank's loss.

    The trainer only makes the networks here.  dropout: seeds, of each step and rank.
    """
    cache, parts = data_of()
    trainer = Trainer(config, cache, parts, cache.task, Fabric(accelerator="cpu", devices=1))
    table = Table()
    worlds = [Shard(rank, table) for rank in RANKS]
    both = [streams(cache, parts, (2, 2), seed=config.seed, rank=rank, world=2) for rank in RANKS]
    steps: list[Record] = []
    while not trainer.finished:
        number, before = trainer.number, trainer.span
        span = trainer.prepare_step()
        student, teacher = trainer.student, trainer.teacher
        if span != before:
            stages = [trainer.stage, copy.deepcopy(trainer.stage)]
            update = optimiser(config.optimiser, list(student.values()), nesterov=span.stage.nesterov)
        index = number - span.first
        update.param_groups[0]["lr"] = rate(config.optimiser, index, span.steps)
        student.train()
        teaching_mode(teacher)

        def losses_of(rank: int, index: int = index, span: Any = span, stages: Any = stages) -> Losses:
            labelled, unlabelled = both[rank]
            assert unlabelled is not None
            step = Step(
                number=trainer.number,
                index=index,
                steps=span.steps,
                seed=config.seed,
                labelled=labelled.batch(trainer.number),
                unlabelled=unlabelled.batch(trainer.number),
                student=trainer.student,
                teacher=trainer.teacher,
                generator=step_generator(config.seed, rank, trainer.number),
                world=worlds[rank],
            )
            torch.manual_seed(dropout[trainer.number][rank])
            found: Losses = stages[rank].losses(step)
            return found

        queries: list[Tensor] = []
        with recording_queries(queries):
            losses = in_turns(table, [lambda rank=rank: losses_of(rank) for rank in RANKS])
        for found in losses:
            weights = trainer.stage.weights()
            weighted = [weights.get(name, 1.0) * loss for name, loss in found.items()]
            (torch.stack(weighted).sum() / len(RANKS)).backward()
        steps.append(
            {
                "losses": [{name: loss.detach() for name, loss in found.items()} for found in losses],
                "gradients": gradients_of(student),
                "totals": [world.totals[:] for world in worlds],
                "queries": queries,
            }
        )
        for world in worlds:
            world.totals.clear()
        update.step()
        update.zero_grad()
        average_(teacher, student, config.ema)
        trainer.number += 1
        steps[-1]["memory"] = [memory_of(s) for s in stages] if trainer.number == span.stop else [{}, {}]
    return {"steps": steps, "student": parameters_of(trainer.student), "teacher": parameters_of(trainer.teacher)}


# ---- two processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    command = [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", SCRIPT, folder]
    subprocess.run(command, check=True, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def load(folder: Path, variant: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{variant}-{rank}.pt") for rank in RANKS]


def reference(processes: list[dict[str, Any]], optimiser: str) -> dict[str, Any]:
    dropout = [[steps["dropout"] for steps in pair] for pair in zip(*(p["steps"] for p in processes), strict=True)]
    return in_one_process(config_of(optimiser), dropout)


def difference(a: dict[str, Tensor], b: dict[str, Tensor], what: str) -> float:
    """The greatest of any number; the names must be the same."""
    assert list(a) == list(b), f"{what}: {set(a) ^ set(b)}"
    return max((float((a[name].double() - b[name].double()).abs().max()) for name in a), default=0.0)


def differences(processes: list[dict[str, Any]], one: dict[str, Any]) -> dict[str, float]:
    """Of all 20 steps, the greatest."""
    worst = dict.fromkeys(("losses", "gradients", "class sums and counts", "memory", "queries"), 0.0)

    def note(what: str, found: float) -> None:
        worst[what] = max(worst[what], found)

    for number, expected in enumerate(one["steps"]):
        here = [p["steps"][number] for p in processes]
        for rank in RANKS:
            where = f"step {number}, rank {rank}"
            note("losses", difference(here[rank]["losses"], expected["losses"][rank], where))
            note("memory", difference(here[rank]["memory"], expected["memory"][rank], where))
            for name in ("totals", "queries"):
                found, wanted = here[rank][name], expected[name][rank] if name == "totals" else None
                if wanted is None:  # in one process the shards' queries come in either order
                    continue
                assert len(found) == len(wanted)
                for a, b in zip(found, wanted, strict=True):
                    note("class sums and counts", float((a.double() - b.double()).abs().max()))
        note("gradients", difference(here[0]["gradients"], expected["gradients"], f"step {number}"))
    for name in ("student", "teacher"):
        worst[name] = max(difference(p[name], one[name], name) for p in processes)
    return worst
