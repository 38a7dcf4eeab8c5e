"""Two streams of batches, labelled and unlabelled, each batch a pure function of (seed, rank, step).

Nothing is remembered between steps, so a run that resumes at step k goes on with the very batches it would have
had.  The unlabelled stream is built from images alone: no label of an unlabelled slice is reachable from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mona_infer.system.memory_budget import memory_budget
from mona_infer.task import centred
from mona_train.data.cache import Cache
from mona_train.data.prepare import STEPS
from mona_train.data.split import Split

LABELLED, UNLABELLED, AUGMENTATION = 0, 1, 2  # numbers of the random streams


@dataclass(frozen=True)
class LabelledBatch:
    images: torch.Tensor  # B 1 H W float32, 0..1
    labels: torch.Tensor  # B H W int64


@dataclass(frozen=True)
class UnlabelledBatch:
    images: torch.Tensor  # B 1 H W float32, 0..1
    rows: torch.Tensor  # B int64: which slices of the stream they are, so that one can be told from another


class Order:
    """Which rows come at which step: every row once per epoch, epochs shuffled anew, ranks dealt round."""

    def __init__(self, rows: int, batch: int, *, seed: int, stream: int, rank: int = 0, world: int = 1) -> None:
        if rows < 1 or batch < 1 or not 0 <= rank < world:
            raise ValueError(f"expected rows, a batch and a rank below world, found {rows}, {batch}, {rank} of {world}")
        self._rows, self._batch, self._rank, self._world = rows, batch, rank, world
        self._seed = (seed, stream)
        self._epochs: dict[int, NDArray[np.int64]] = {}

    def at(self, step: int) -> NDArray[np.int64]:
        first = (step * self._world + self._rank) * self._batch
        places = np.arange(first, first + self._batch)
        return np.concatenate(
            [
                self._epoch(int(e))[places[places // self._rows == e] % self._rows]
                for e in np.unique(places // self._rows)
            ]
        )

    def _epoch(self, number: int) -> NDArray[np.int64]:
        if number not in self._epochs:
            self._epochs = {n: order for n, order in self._epochs.items() if n == number - 1}
            self._epochs[number] = np.random.default_rng([*self._seed, number]).permutation(self._rows)
        return self._epochs[number]


class Rows:
    """Some rows of a cached array: on the device when they fit there, else picked from the memory map."""

    def __init__(self, array: NDArray[Any], rows: tuple[int, ...], device: torch.device, budget: int) -> None:
        self._device = device
        self._rows = np.asarray(rows, np.int64)
        self._resident: torch.Tensor | None = None
        self._mapped: NDArray[Any] | None = None
        if len(rows) * array[0].nbytes <= budget:
            # torch indexes int16 but not uint16: the same bits under another name
            picked = np.ascontiguousarray(array[self._rows])
            self._resident = torch.from_numpy(picked.view(np.int16) if picked.dtype == np.uint16 else picked).to(device)
        else:
            self._mapped = array

    def __len__(self) -> int:
        return len(self._rows)

    def pick(self, at: NDArray[np.int64]) -> torch.Tensor:
        if self._resident is not None:
            return self._resident[torch.from_numpy(at).to(self._device)]
        assert self._mapped is not None
        picked = np.ascontiguousarray(self._mapped[self._rows[at]])
        return torch.from_numpy(picked.view(np.int16) if picked.dtype == np.uint16 else picked).to(self._device)


def _intensities(steps: torch.Tensor) -> torch.Tensor:
    return ((steps.to(torch.int32) & STEPS).to(torch.float32) / STEPS).unsqueeze(1)


class LabelledStream:
    """Slices with their labels, of the labelled patients only."""

    def __init__(self, cache: Cache, rows: tuple[int, ...], order: Order, device: torch.device, budget: int) -> None:
        found = {row: label for case in cache.cases for row, label in case.label_rows.items()}
        missing = [row for row in rows if row not in found]
        if missing:
            raise ValueError(f"row {missing[0]} has no label and cannot be in the labelled stream")
        self._images = Rows(cache.images, rows, device, budget)
        self._labels = Rows(cache.labels, tuple(found[row] for row in rows), device, budget)
        self._order = order

    def __len__(self) -> int:
        return len(self._images)

    def batch(self, step: int) -> LabelledBatch:
        at = self._order.at(step)
        return LabelledBatch(_intensities(self._images.pick(at)), self._labels.pick(at).to(torch.int64))


class UnlabelledStream:
    """Slices without labels.  It is given an array of images and never sees the cache that has labels too."""

    def __init__(
        self, images: NDArray[np.uint16], rows: tuple[int, ...], order: Order, device: torch.device, budget: int
    ) -> None:
        self._images = Rows(images, rows, device, budget)
        self._order = order

    def __len__(self) -> int:
        return len(self._images)

    def batch(self, step: int) -> UnlabelledBatch:
        at = self._order.at(step)
        images = _intensities(self._images.pick(at))
        return UnlabelledBatch(images, torch.from_numpy(at).to(images.device))


def streams(
    cache: Cache,
    split: Split,
    batch: tuple[int, int],
    *,
    seed: int,
    rank: int = 0,
    world: int = 1,
    device: torch.device | str = "cpu",
    budget: int | None = None,
    window: tuple[int, int] | None = None,
) -> tuple[LabelledStream, UnlabelledStream | None]:
    """Both streams of a run, giving batch[0] labelled and batch[1] unlabelled slices a step.

    Where every training slice is labelled there is no second stream.

    `budget` is the number of bytes each array may take on the device; by default a quarter of what is free.
    With a `window` (rows, columns) batches are that centre of the cached slices, and only it is held on the device.
    """
    device = torch.device(device)
    if budget is None:
        budget = (torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory_budget()) // 4
    if window is not None:
        # Views: a memory map stays one, and what is picked or held of it is the window alone.
        rows, columns = centred(cache.images.shape[1:], window)
        cache = replace(cache, images=cache.images[:, rows, columns], labels=cache.labels[:, rows, columns])
    labelled = Order(len(split.labelled), batch[0], seed=seed, stream=LABELLED, rank=rank, world=world)
    with_labels = LabelledStream(cache, split.labelled, labelled, device, budget)
    if not split.unlabelled:
        return with_labels, None
    unlabelled = Order(len(split.unlabelled), batch[1], seed=seed, stream=UNLABELLED, rank=rank, world=world)
    return with_labels, UnlabelledStream(cache.images, split.unlabelled, unlabelled, device, budget)


def step_generator(seed: int, rank: int, step: int) -> torch.Generator:
    """The one generator that drives all augmentation of a step."""
    (state,) = np.random.SeedSequence([seed, AUGMENTATION, rank, step]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) & (2**63 - 1))
