"""Two processes do what one would that ran both their batches as micro-batches."""

from __future__ import annotations

import contextlib
import copy
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.launching import PATIENCE, TOLERANCE, TORCHRUN
from helpers.two_processes import config_of, data_of, gradients_of, memory_of, parameters_of
from lightning_fabric import Fabric
from torch import Tensor

from mona_train.config.schema import Config
from mona_train.data.prepare import STEPS
from mona_train.data.stream import step_generator, streams
from mona_train.engine.distributed import SingleProcess
from mona_train.engine.ema_teacher import average_, teaching_mode
from mona_train.engine.optimise import optimiser, rate
from mona_train.engine.trainer import Trainer
from mona_train.methods.base import Losses, Step

pytestmark = pytest.mark.xdist_group("processes")

TESTS = Path(__file__).parents[2]
SCRIPT = TESTS / "helpers" / "two_processes.py"
RANKS = range(2)

Record = dict[str, Any]


# ---- one process, both batches


class Table:
    """Where the shards meet: one at a time runs, and each lays down what the other waits for."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self.laid: dict[int, dict[int, Tensor]] = {}


class Shard(SingleProcess):
    """One of two micro-batches, as a process of its own; everything goes through Python."""

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
    shards = [Shard(rank, table) for rank in RANKS]
    both = [streams(cache, parts, (2, 2), seed=config.seed, rank=rank, world_size=2) for rank in RANKS]
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

        def losses_of(rank: int, index: int = index, span: Any = span, stages: Any = stages) -> Any:
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
                processes=shards[rank],
            )
            torch.manual_seed(dropout[trainer.number][rank])
            weights = stages[rank].weights(step)
            return {name: (loss, weights.get(name, 1.0)) for name, loss in stages[rank].losses(step).items()}

        losses = in_turns(table, [lambda rank=rank: losses_of(rank) for rank in RANKS])
        for found in losses:
            weighted = [weight * loss for loss, weight in found.values()]
            (torch.stack(weighted).sum() / len(RANKS)).backward()
        steps.append(
            {
                "losses": [{name: loss.detach() for name, (loss, _) in found.items()} for found in losses],
                "gradients": gradients_of(student),
                "totals": [shard.totals[:] for shard in shards],
            }
        )
        for shard in shards:
            shard.totals.clear()
        update.step()
        update.zero_grad()
        average_(teacher, student, config.ema)
        trainer.number += 1
        steps[-1]["memory"] = [memory_of(s) for s in stages] if trainer.number == span.stop else [{}, {}]
    return {"steps": steps, "student": parameters_of(trainer.student), "teacher": parameters_of(trainer.teacher)}


# ---- two processes


@contextlib.contextmanager
def two_processes(folder: Path, *variants: str) -> Iterator[Path]:
    """Where each process wrote down what it did, by variant of the script."""
    command = [*TORCHRUN, SCRIPT, folder, *variants]
    subprocess.run(
        command, check=True, timeout=PATIENCE, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    )
    yield folder
    for path in folder.iterdir():  # pytest would keep 170 MB a variant
        path.unlink()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with two_processes(tmp_path_factory.mktemp("two"), "sgd", "local-gather") as folder:
        yield folder


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with two_processes(tmp_path_factory.mktemp("more"), "adamw", "local-total", "local-average") as folder:
        yield folder


@pytest.fixture(scope="module")
def processes(folder: Path) -> list[Record]:
    return load(folder, "sgd")


@pytest.fixture(scope="module")
def one(processes: list[Record]) -> Record:
    return reference(processes, "sgd")


def load(folder: Path, variant: str) -> list[Record]:
    return [torch.load(folder / f"{variant}-{rank}.pt") for rank in RANKS]


def reference(processes: list[Record], optimiser: str) -> Record:
    dropout = [[step["dropout"] for step in steps] for steps in zip(*(p["steps"] for p in processes), strict=True)]
    return in_one_process(config_of(optimiser), dropout)


def agree(processes: list[Record], one: Record) -> None:
    """Every number of 20 steps, and every name: a loss or gradient that only one side has is a difference too."""
    worst: Counter[str] = Counter()

    def compare(what: str, found: dict[Any, Tensor], expected: dict[Any, Tensor]) -> None:
        assert list(found) == list(expected), f"{what}: {set(found) ^ set(expected)}"
        for name, value in found.items():
            worst[what] = max(worst[what], float((value.double() - expected[name].double()).abs().max()))

    for number, expected in enumerate(one["steps"]):
        for rank in RANKS:
            here = processes[rank]["steps"][number]
            compare("losses", here["losses"], expected["losses"][rank])
            compare("class sums and counts", *(dict(enumerate(t)) for t in (here["totals"], expected["totals"][rank])))
            compare("banks and rings", here["memory"], expected["memory"][rank])
            if "gradients" in here:
                compare("gradients", here["gradients"], expected["gradients"])
    for rank in RANKS:
        compare("student", processes[rank]["student"], one["student"])
        compare("teacher", processes[rank]["teacher"], one["teacher"])
    print("greatest differences:", dict(worst))
    assert max(worst.values()) <= TOLERANCE, worst


def test_two_processes_are_one_with_two_micro_batches(processes: list[Record], one: Record) -> None:
    agree(processes, one)
    stages = [list(step["losses"]) for step in processes[0]["steps"]]
    assert stages[2] == ["supervised"] and stages[3] == ["supervised", "global", "local"]  # 20 rows, 8 a step
    assert "neighbours" not in stages[10] and "neighbours" in stages[11]  # 10 rows, 4 a step


@pytest.mark.full
def test_adamw_agrees_too(more: Path) -> None:
    """It counts steps of each parameter: heads that wait for their bank must not be stepped with zeros meanwhile."""
    processes = load(more, "adamw")
    agree(processes, reference(processes, "adamw"))


def test_rows_that_are_not_exchanged_are_found_out(folder: Path, one: Record) -> None:
    with pytest.raises(AssertionError):
        agree(load(folder, "local-gather"), one)


@pytest.mark.full
@pytest.mark.parametrize("variant", ["local-total", "local-average"])
def test_class_sums_and_gradients_that_are_not_exchanged_are_found_out(more: Path, one: Record, variant: str) -> None:
    with pytest.raises(AssertionError):
        agree(load(more, variant), one)


def test_after_every_step_both_hold_the_same(processes: list[Record]) -> None:
    """Weights, teachers, banks and rings, and the averaged gradients: bit by bit."""
    hashes = [[step["hashes"] for step in p["steps"]] for p in processes]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 20
    assert len({step["student"] for step in hashes[0]}) == 20  # and they move


def test_batch_norm_statistics_are_each_processs_own_until_their_mean_is_taken(processes: list[Record]) -> None:
    own, shared = ([p["statistics"][which] for p in processes] for which in ("own", "shared"))
    assert any(not torch.equal(own[0][name], own[1][name]) for name in own[0])
    for name, mean in shared[0].items():
        assert torch.equal(mean, shared[1][name])
        torch.testing.assert_close(mean, (own[0][name] + own[1][name]) / 2)


def test_each_process_draws_for_itself(processes: list[Record]) -> None:
    for what in ("augmentation", "dropout"):  # seeds
        drawn = [step[what] for p in processes for step in p["steps"]]
        assert len(set(drawn)) == len(drawn) == 40
    pairs = list(zip(*(p["steps"] for p in processes), strict=True))
    assert all(not torch.equal(x, y) for a, b in pairs for x, y in zip(a["queries"], b["queries"], strict=True))
    assert sum(len(a["queries"]) for a, _ in pairs) == 12  # one draw in each step of ACR


@pytest.mark.parametrize("part", ["labelled", "unlabelled"])
def test_no_slice_comes_twice_before_all_have_come_once(processes: list[Record], part: str) -> None:
    """Batches in the order of steps, and of ranks within a step, are one epoch after the other."""
    cache, parts = data_of()
    rows = getattr(parts, part)
    known = {cache.images[row].tobytes(): row for row in rows}
    dealt = []
    for steps in zip(*(p["steps"] for p in processes), strict=True):
        for step in steps:
            pixels = (step[part][:, 0].double() * STEPS).round().to(torch.int32).numpy().astype("uint16")
            dealt += [known[slice_.tobytes()] for slice_ in pixels]
    assert len(dealt) == 20 * 2 * 2
    epochs = [dealt[start : start + len(rows)] for start in range(0, len(dealt), len(rows))]
    assert all(sorted(epoch) == sorted(rows) for epoch in epochs[:-1]) and len(epochs) > 3
    assert len(set(epochs[-1])) == len(epochs[-1])
