"""Every method beside UNet-L: file, lines, parameters, passes and time of a step, as Markdown.

    python tools/method_table.py                 at 96x96, 6+6 slices of the phantom's size
    python tools/method_table.py em cps          only these

Alone on the machine, please: it measures.  Every step is of the last stage, at its middle, when all losses are on; the
time is the median of some steps divided by UNet-L's, measured in the same run before and after it.
"""

from __future__ import annotations

import argparse
import inspect
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from mona_infer.task import CARDIAC
from mona_train.config.presets import preferred_pretraining, preset, with_stages
from mona_train.data.cache import Cache, CachedCase
from mona_train.data.split import Split
from mona_train.engine.trainer import Trainer
from mona_train.methods.registry import first_stage, methods, stages_of
from mona_train.networks.unet import UNet

SIDE, PATIENTS, SLICES = 96, 12, 10
LABELLED = 3
WARM, STEPS = 3, 9


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


def trainer_of(method: str) -> Trainer:
    chosen = first_stage(method, "default", preferred_pretraining("quick"))
    settings = preset("quick", dataset="noise", method=method, pretrain=chosen, pixels=0, size=(SIDE, SIDE))
    kinds = {kind.name: kind.Settings for kind in stages_of(method, chosen)}
    cache, split = random_data()
    fabric = Fabric(devices=1, accelerator="cpu", precision=settings.precision)  # type: ignore[arg-type]
    return Trainer(with_stages(settings, kinds), cache, split, cache.task, fabric)


def seconds(trainer: Trainer) -> tuple[float, int]:
    """Median time of a step, and how often it calls a U-Net."""
    span, times, calls = trainer.spans[-1], [], 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for n in range(WARM + STEPS):
        trainer.number = span.first + span.steps // 2 + n
        trainer.prepare_step()
        calls = 0
        unets = [m for part in trainer.parts.values() for m in part.modules() if isinstance(m, UNet)]
        hooks = [m.register_forward_hook(count) for m in unets]
        start = time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - start)
        for hook in hooks:
            hook.remove()
    return median(times[WARM:]), calls


def parameters(module: nn.Module) -> float:
    return sum(p.numel() for p in module.parameters()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    given = parser.parse_args()
    plain, _ = seconds(trainer_of("unet-l"))
    print("| method | file | lines | parameters, M: training, test | U-Net calls | time of a step |")
    print("|---|---|---|---|---|---|")
    for name, method in methods().items():
        if given.methods and name not in given.methods:
            continue
        trainer, stage = trainer_of(name), method.stages[-1]
        took, calls = seconds(trainer)
        path = Path(inspect.getsourcefile(stage) or "")
        lines = len(path.read_text().splitlines())
        size = f"{parameters(trainer.student):.2f}, {parameters(trainer.network):.2f}"
        print(f"| `{name}` | {path.name} | {lines} | {size} | {calls} | {took / plain:.2f} |", flush=True)
    again, _ = seconds(trainer_of("unet-l"))
    print(
        f"\nUNet-L: {1e3 * plain:.0f} ms a step before, {1e3 * again:.0f} ms after; {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
