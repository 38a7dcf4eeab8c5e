"""Every method beside UNet-L: file, lines, parameters, passes and time of a step, and its tests, as Markdown.

    python tools/method_table.py                    all of them
    python tools/method_table.py em cps             only these
    python tools/method_table.py --report FILE      with the tests' results from `pytest --junit-xml FILE`
    python tools/method_table.py --untimed          neither times nor tests: a minute, on a busy machine too

A step is measured at the middle of every stage, when all losses are on, with full banks, on 6 + 6 slices of 96x96 in
the precision of this processor.  Steps of the method and of UNet-L take turns, and the time is that of the processor
on one thread, so that other programs disturb it little.  Without --report the tests of every method are run first.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from mona_infer.task import CARDIAC
from mona_train.config.presets import preferred_pretraining, preset, with_stages
from mona_train.config.schema import Config
from mona_train.data.cache import Cache, CachedCase
from mona_train.data.split import Split
from mona_train.engine.trainer import Span, Trainer
from mona_train.methods.acr import PRINCIPLES
from mona_train.methods.bank import Bank
from mona_train.methods.registry import file_of, first_stage, methods, pretraining, stages_of
from mona_train.networks.unet import UNet

SIDE, PATIENTS, SLICES, LABELLED = 96, 12, 10, 3
WARM, STEPS = 2, 7
ROOT = Path(__file__).parent.parent
TESTS = "tests/train/methods/test_every_method.py"
# What the columns are called, and the test that a method must pass for each.
SHOWN = {
    "resume": "test_resumed_in_every_stage_it_ends_in_the_same_state",
    "two processes": "test_two_processes_agree_on_weights_and_memory",
    "export": "test_an_exported_model_gives_the_masks_of_the_run",
}
PUBLISHED = "mona, as published"  # mona itself is measured as the presets for fewer steps train it


class Cost(NamedTuple):
    """Of a step."""

    time: float  # in those of UNet-L; nan: not measured
    learning: float  # forward passes of the batch through a U-Net, with a gradient
    asking: float  # without
    trained: float  # millions of parameters
    kept: float  # of the network that predicts


def random_data() -> tuple[Cache, Split]:
    """Slices of noise take as long as hearts."""
    draws = np.random.default_rng(0)
    shape = (PATIENTS * SLICES, SIDE, SIDE)
    images, labels = draws.integers(0, 65535, shape, np.uint16), draws.integers(0, 4, shape, np.uint8)
    cases = tuple(
        CachedCase(
            name=f"p{n}",
            patient=f"p{n}",
            part=None,
            first=n * SLICES,
            slices=SLICES,
            first_label=n * SLICES,
            reversed=False,
            shape=(SLICES, SIDE, SIDE),
            spacing=(10.0, 1.5, 1.5),
            low=0.0,
            high=1.0,
            voxels=(1, 1, 1, 1),
            content=(1.0,) * SLICES,
            image_hash=str(n),
        )
        for n in range(PATIENTS)
    )
    rows, names = range(PATIENTS * SLICES), [case.name for case in cases]
    known = LABELLED * SLICES
    split = Split(tuple(rows[:known]), tuple(rows[known:]), (), (), tuple(names[:3]), tuple(names[3:]), "noise")
    return Cache(Path("nowhere"), "noise", replace(CARDIAC, size=(SIDE, SIDE)), cases, {}, images, labels), split


def trainer_of(name: str) -> Trainer:
    method = "mona" if name == PUBLISHED else name
    chosen = "default" if name == PUBLISHED else first_stage(method, "default", preferred_pretraining("quick"))
    settings = preset("quick", dataset="noise", method=method, pretrain=chosen, pixels=0, size=(SIDE, SIDE))
    settings = with_stages(settings, {kind.name: kind.Settings for kind in stages_of(method, chosen)})
    if name == PUBLISHED:
        settings = as_published(settings)
    cache, split = random_data()
    fabric = Fabric(devices=1, accelerator="cpu", precision=settings.precision)  # type: ignore[arg-type]
    return Trainer(settings, cache, split, cache.task, fabric)


def as_published(settings: Config) -> Config:
    """MONA's own stages, with all principles."""
    own = {kind.name: kind.Settings() for kind in stages_of("mona")}
    assert own["acr"].principles == PRINCIPLES
    return replace(settings, stages=own)


def at_the_middle(trainer: Trainer, span: Span) -> None:
    """Enter a stage when all of its losses are on: banks would take hundreds of steps to fill."""
    trainer.number = span.first + span.steps // 2
    trainer.prepare_step()
    for bank in (m for m in trainer.stage.modules() if isinstance(m, Bank)):
        bank.add(torch.randn(len(bank), *bank.kept.shape[1:]))


@contextmanager
def counted(trainer: Trainer, into: dict[bool, float]) -> Iterator[None]:
    """Adds up what passes through each half of a U-Net, in batches, by whether a gradient will come back."""
    unets = [m for part in trainer.parts.values() for m in part.modules() if isinstance(m, UNet)]
    batch = SIDE * SIDE * sum(vars(trainer.config.batch).values())
    halves = [(unet.encoder[0], 0.36) for unet in unets] + [(unet.head, 0.64) for unet in unets]

    def hook(share: float) -> Any:
        def count(_: nn.Module, inputs: tuple[torch.Tensor, ...], found: torch.Tensor) -> None:
            into[found.requires_grad] += share * inputs[0][:, 0].numel() / batch

        return count

    hooks = [half.register_forward_hook(hook(share)) for half, share in halves]
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()


def seconds(trainer: Trainer) -> float:
    start = time.process_time()
    trainer.step()
    return time.process_time() - start


def parameters(module: nn.Module) -> float:
    return sum(p.numel() for p in module.parameters()) / 1e6


def cost(trainer: Trainer, span: Span, plain: Trainer | None) -> Cost:
    at_the_middle(trainer, span)
    passes = {True: 0.0, False: 0.0}
    with counted(trainer, passes):
        trainer.step()
    sizes = parameters(trainer.student), parameters(trainer.answering[trainer.stage.predicts])
    return Cost(ratio(trainer, plain) if plain else math.nan, passes[True], passes[False], *sizes)


def ratio(trainer: Trainer, plain: Trainer) -> float:
    pairs = [(seconds(trainer), seconds(plain)) for _ in range(WARM + STEPS)]
    mine, theirs = (median(each) for each in zip(*pairs[WARM:], strict=True))
    return mine / theirs


def row(name: str, plain: Trainer | None, passed: dict[str, dict[str, str]]) -> str:
    trainer = trainer_of(name)
    costs = [cost(trainer, span, plain) for span in trainer.spans]
    path = file_of("mona" if name == PUBLISHED else name)
    lines = len(path.read_text().splitlines())
    size = f"{max(c.trained for c in costs):.2f}, {costs[-1].kept:.2f}"
    passes = ", ".join(f"{c.learning:.1f} + {c.asking:.1f}" if c.asking else f"{c.learning:.1f}" for c in costs)
    cells = [_quoted(name), path.name, lines, size, passes]
    if plain:
        tests = (passed[column].get(name.partition(",")[0], "no test") for column in SHOWN)
        cells += [", ".join(f"{c.time:.2f}" for c in costs), *tests]
    return _line(cells)


def _line(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _quoted(name: str) -> str:
    method, comma, more = name.partition(",")
    return f"`{method}`{comma}{more}"


def results(report: Path) -> dict[str, dict[str, str]]:
    """By column and method, what became of its test."""
    found: dict[str, dict[str, str]] = {column: {} for column in SHOWN}
    columns = {test: column for column, test in SHOWN.items()}
    for case in ElementTree.parse(report).iter("testcase"):
        test, _, name = (case.get("name") or "").removesuffix("]").partition("[")
        if test in columns:
            outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
            found[columns[test]][name] = outcome
    return found


def tested(given: Path | None) -> dict[str, dict[str, str]]:
    if given:
        return results(given)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run([sys.executable, "-m", "pytest", "-q", TESTS, f"--junit-xml={report}"], cwd=ROOT, stdout=2)
        return results(report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--report", type=Path, help="a JUnit file of the tests of every method")
    parser.add_argument("--untimed", action="store_true", help="neither times nor tests")
    given = parser.parse_args()
    names = [*(n for n in methods() if n not in pretraining()), *(n for n in methods() if n in pretraining())]
    names.insert(names.index("mona") + 1, PUBLISHED)
    if unknown := set(given.methods) - set(names):
        parser.error(f"unknown method {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    columns = ["method", "file", "lines", "parameters, M: training, test", "passes of a step"]
    passed, plain = {}, None
    if not given.untimed:
        columns += ["time of a step", *SHOWN]
        passed, plain = tested(given.report), trainer_of("unet-l")
        at_the_middle(plain, plain.spans[-1])
    once = unet_l(plain)
    print(_line(columns), _line(["---"] * len(columns)), sep="\n")
    for name in (n for n in names if not given.methods or n in given.methods):
        print(row(name, plain, passed), flush=True)
    if plain:
        spans = f"{once:.0f} ms a step before, {unet_l(plain):.0f} ms after"
        print(f"\nUNet-L: {spans}; {plain.config.precision}, 1 thread")


def unet_l(plain: Trainer | None) -> float:
    """Milliseconds of its step now: what other programs on the machine do to the times."""
    return 1e3 * median(seconds(plain) for _ in range(STEPS)) if plain else math.nan


if __name__ == "__main__":
    main()
