"""The first look: a tiny U-Net finds the organ in a whole slice of 64x64, and the network sees a window around it.

Trained in two rounds before the run itself: on the labelled slices; then also on its own answers for the training scans
that it was surest of.  With a single labelled patient the second round is what makes it reliable (docs/results.md).
It depends on the slices and on which of them are labelled, not on method or seed: all runs on a cache share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mona_infer.engines.base import in_batches
from mona_infer.errors import InputError
from mona_infer.geometry.slicing import spread
from mona_infer.geometry.windows import Box, cover
from mona_infer.segmenting.first_look import certainty, coarse, find_box, organ_of, within
from mona_infer.system.progress import progress
from mona_infer.task import LOOK
from mona_train.augment.fitted import Fitted
from mona_train.config.schema import Config
from mona_train.data.cache import Cache, CachedCase
from mona_train.data.prepare import STEPS as LEVELS
from mona_train.data.prepare import say_once
from mona_train.data.resolved import Resolved, content_of, labels_for_geometry
from mona_train.data.stream import step_generator
from mona_train.engine.torch_engine import TorchEngine
from mona_train.losses.supervised import supervised
from mona_train.networks.unet import UNet
from mona_train.run import checkpoint

FILE = "first_look.safetensors"  # in a run
VERSION = 1  # of what is trained here: an older first look is not used again
WIDTH = 0.25
STEPS = 500  # of each round
BATCH = 16
LR, WEIGHT_DECAY, POWER = 2e-3, 0.01, 0.9
RARE = 0.02  # of the training scans: where the first look is less certain than in them, the user is warned
SUREST = 0.75  # of the scans it looked at, those whose organ it is surest of
# Organs may be anywhere, and a scan may be cropped or have a large field of view.
VIEWS = Fitted(degrees=25, scale=(0.6, 1.5), shift=0.6, elastic=0.03)


def tiny_network() -> UNet:
    """In one memory layout, trained or read: another adds up in another order, and is saved as other bytes."""
    network = UNet(2, width=WIDTH)
    network.to(memory_format=torch.channels_last)
    return network


def with_first_look(
    config: Config, resolved: Resolved, cache: Cache, run: Path | None = None
) -> tuple[Resolved, nn.Module | None]:
    """What a run resolved, with the place of the window in every training case; and the first look that found it.

    `run` is the folder of a run that is resumed: it keeps what it has.
    """
    if not resolved.task.first_look:
        return resolved, None
    if run is not None and (run / FILE).exists() and resolved.corners:
        return resolved, load_first_look(run)
    network = shared_look(config, resolved, cache)
    seen = list(_seen(cache, resolved, network))
    least = float(np.quantile([certain for _, _, certain in seen], RARE))
    task = replace(resolved.task, least_certain=float(f"{least:.3g}"))
    return replace(resolved, task=task, corners={name: corner for name, corner, _ in seen}), network.eval()


def shared_look(config: Config, resolved: Resolved, cache: Cache) -> nn.Module:
    """The first look that all runs on these slices and labels share; trained by the first of them."""
    rows = labels_for_geometry(config, cache)
    facts = [VERSION, content_of(cache), rows]
    path = cache.folder / "looks" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}.safetensors"
    if path.exists():
        return _read(path, "delete it, and the next run trains it again")
    say_once(f"learning where the organ is (first look): {2 * STEPS} short steps, half a minute on two cores")
    network = train_first_look(cache, rows, {*resolved.split.labelled, *resolved.split.unlabelled})
    path.parent.mkdir(exist_ok=True)
    checkpoint.save(path, network.state_dict(), {"version": VERSION})
    return network


def train_first_look(cache: Cache, labelled: Iterable[int], training: set[int]) -> UNet:
    """Two rounds: the labelled slices; then also its own answers for the training scans that it was surest of."""
    wanted = set(labelled)
    slices, organs = [], []
    for case in cache.cases:
        rows = [row for row in case.rows if row in wanted]
        if rows:
            slices.append(_frames(cache, case, rows))
            organs.append(_organs(cache, case, rows))
    known = len(np.concatenate(slices))
    torch.manual_seed(0)
    network = tiny_network()
    steps = progress(_rounds(network, cache, wanted, training, slices, organs, known), 2 * STEPS, "first look")
    for _ in steps:
        pass
    return network


def _rounds(
    network: UNet,
    cache: Cache,
    labelled: set[int],
    training: set[int],
    slices: list[NDArray[np.float32]],
    organs: list[NDArray[np.float32]],
    known: int,
) -> Iterator[int]:
    yield from _learn(network, np.concatenate(slices), np.concatenate(organs), known, 0)
    answers, others = [], training - labelled
    for case in cache.cases:
        rows = [row for row in case.rows if row in others]
        if rows and (answer := _answer(network, _frames(cache, case, spread(rows)))) is not None:
            answers.append(answer)
    limit = np.quantile([a.sure for a in answers], 1 - SUREST) if answers else 1.0
    chosen = [a for a in answers if a.sure >= limit]
    slices, organs = [*slices, *(a.slices for a in chosen)], [*organs, *(a.organ for a in chosen)]
    yield from _learn(network, np.concatenate(slices), np.concatenate(organs), known, STEPS)


@dataclass(frozen=True, eq=False)
class _Answer:
    slices: NDArray[np.float32]
    organ: NDArray[np.float32]
    sure: float  # mean probability in the organ


def _answer(network: UNet, slices: NDArray[np.float32]) -> _Answer | None:
    logits = np.concatenate([answer for _, answer in in_batches(TorchEngine(network), slices)])
    organ = organ_of(logits)
    return _Answer(slices, organ.astype(np.float32), certainty(logits)) if organ.any() else None


def _learn(
    network: UNet, slices: NDArray[np.float32], organs: NDArray[np.float32], known: int, first: int
) -> Iterator[int]:
    """One round; from the second on, half of each batch is labelled."""
    network.train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    images, labels = torch.from_numpy(slices)[:, None], torch.from_numpy(organs)
    for index in range(STEPS):
        generator = step_generator(0, 0, first + index)
        for group in optimiser.param_groups:
            group["lr"] = LR * (1 - index / STEPS) ** POWER
        half = BATCH if known == len(images) else BATCH // 2
        rows = torch.randint(known, (half,), generator=generator)
        if half < BATCH:
            others = torch.randint(known, len(images), (BATCH - half,), generator=generator)
            rows = torch.cat([rows, others])
        view = VIEWS.geometry(generator, BATCH, (LOOK, LOOK), (LOOK, LOOK), "cpu").apply(images[rows], labels[rows])
        assert view.labels is not None
        logits = network(VIEWS.appearance(generator, view.images, None)).logits
        loss = supervised(logits, (view.labels > 0).long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield index


def _frames(cache: Cache, case: CachedCase, rows: list[int]) -> NDArray[np.float32]:
    """Slices of a case as the first look sees them: all of each, its long side 64 pixels, in the middle of 64x64."""
    cut: NDArray[np.uint16] = cache.images[rows][:, *cache.frame_of(case)]
    return coarse(cut.astype(np.float32) / np.float32(LEVELS))


def _organs(cache: Cache, case: CachedCase, rows: list[int]) -> NDArray[np.float32]:
    labels = cache.labels[[case.label_rows[row] for row in rows]][:, *cache.frame_of(case)]
    return (coarse((labels > 0).astype(np.float32)) > 0.5).astype(np.float32)


def _seen(cache: Cache, resolved: Resolved, network: UNet) -> Iterator[tuple[str, tuple[int, int], float]]:
    """For the cases that are trained on: (top, left) of the window in the cached slices, and how certain it was."""
    engine, window = TorchEngine(network), resolved.task.input_size
    training = {*resolved.split.labelled, *resolved.split.unlabelled}
    for case in cache.cases:
        if training.isdisjoint(case.rows):
            continue
        rows, columns = cache.frame_of(case)
        frame = rows.stop - rows.start, columns.stop - columns.start
        answers = in_batches(engine, _frames(cache, case, spread(list(case.rows))))
        logits = np.concatenate([answer for _, answer in answers])
        places = cover(find_box(logits, frame) or Box.centre(frame), window, frame)
        top, left = (round(float(np.mean(side))) for side in zip(*places, strict=True))  # of several, the middle
        yield case.name, (rows.start + top, columns.start + left), certainty(within(logits, frame))


def save_first_look(network: nn.Module, run: Path) -> None:
    checkpoint.save(run / FILE, network.state_dict(), {"version": VERSION})


def load_first_look(run: Path) -> UNet:
    """The first look of a run."""
    return _read(run / FILE, f"delete it and run `mona train --resume {run}`, which makes it again")


def _read(path: Path, remedy: str) -> UNet:
    network = tiny_network()
    try:
        network.load_state_dict(checkpoint.load(path)[0])
    except (InputError, RuntimeError) as error:  # torch's, on tensors of another network
        why = str(error).splitlines()[0]
        raise InputError(f"{path} is missing, damaged or not a first look ({why}); {remedy}") from error
    network.eval()
    return network
