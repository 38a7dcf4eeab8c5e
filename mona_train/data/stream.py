"""Two streams of batches, labelled and unlabelled, each batch a pure function of (seed, rank, step).

Nothing is remembered between steps, so a run resumed at step k gets exactly the batches it would have had.  The
unlabelled stream is built from images alone: the label of an unlabelled slice cannot be reached from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from mona_infer.geometry.intensity import normalise
from mona_infer.system.memory_budget import memory_budget
from mona_train.data.cache import Cache, CachedCase
from mona_train.data.prepare import STEPS
from mona_train.data.split import Split

LABELLED, UNLABELLED, AUGMENTATION = 0, 1, 2  # ids of the random streams
PARTITION = 5  # 3 and 4 are those of mona_train.engine.trainer


class Places(NamedTuple):
    """Where slices lie: which scan they are of, and how deep in it.  Nothing here leads to a label."""

    scans: torch.Tensor  # B int64: slices of one scan have the same number
    depths: torch.Tensor  # B float32: 0 for the first slice of a scan, 1 for the last


@dataclass(frozen=True)
class LabelledBatch:
    images: torch.Tensor  # B 1 H W float32, 0..1
    labels: torch.Tensor  # B H W int64
    rows: torch.Tensor | None = None  # B int64: the slices' positions in the stream; None: not known
    places: Places | None = None


@dataclass(frozen=True)
class UnlabelledBatch:
    images: torch.Tensor  # B 1 H W float32, 0..1
    rows: torch.Tensor  # B int64: the slices' positions in the stream, which identify them
    places: Places | None = None


class Dealing(Protocol):
    """Which rows a step gets."""

    def at(self, step: int) -> NDArray[np.int64]: ...


class Order:
    """Which rows each step gets: every row once per epoch, reshuffled for each epoch, dealt to the ranks in turn."""

    def __init__(self, rows: int, batch: int, *, seed: int, stream: int, rank: int = 0, world_size: int = 1) -> None:
        if rows < 1 or batch < 1 or not 0 <= rank < world_size:
            found = f"{rows} rows, a batch of {batch} and rank {rank} of {world_size}"
            raise ValueError(
                f"expected at least one row, a batch of at least 1 and a rank below the world size, found {found}"
            )
        self._rows, self._batch, self._rank, self._world_size = rows, batch, rank, world_size
        self._seed = (seed, stream)
        self._epochs: dict[int, NDArray[np.int64]] = {}

    def at(self, step: int) -> NDArray[np.int64]:
        first = (step * self._world_size + self._rank) * self._batch
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


class Partitions:
    """Batches of whole depths: of each of some scans one slice from every one of `parts` equal parts, in that order.

    Every scan once per epoch, as `Order` deals rows; which slice of a part is drawn anew each time.  A scan with fewer
    slices than parts repeats some.
    """

    def __init__(
        self,
        scans: NDArray[np.int64],
        parts: int,
        batch: int,
        *,
        seed: int,
        stream: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """`scans` names the scan of every row; rows of a scan are in the order of its slices."""
        self._rows = [np.flatnonzero(scans == scan) for scan in np.unique(scans)]
        self._parts, self._seed = parts, (seed, stream, rank)
        deal = {"seed": seed, "stream": stream, "rank": rank, "world_size": world_size}
        self._order = Order(len(self._rows), max(1, batch // parts), **deal)

    def at(self, step: int) -> NDArray[np.int64]:
        draws = np.random.default_rng([*self._seed, PARTITION, step])
        return np.concatenate([self._one_each(self._rows[scan], draws) for scan in self._order.at(step)])

    def _one_each(self, rows: NDArray[np.int64], draws: np.random.Generator) -> NDArray[np.int64]:
        """The middle of part p is at depth (p + 1/2) / parts; up to half a part is added to or taken from it."""
        depths = (np.arange(self._parts) + draws.random(self._parts)) / self._parts
        return np.asarray(rows[(depths * len(rows)).astype(np.int64)])


@dataclass(frozen=True)
class Crop:
    """The part of each cached slice that batches contain; it may reach beyond the slice, where it is 0."""

    size: tuple[int, int]
    corners: NDArray[np.int64]  # (rows of the cache, 2): top and left, possibly negative
    levels: NDArray[np.float32] | None = None  # (rows of the cache, 2): the values that become 0 and 1

    def of(self, array: NDArray[Any], rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of a cached array, cut out; `places` are the rows of the cache whose corners they have."""
        height, width = array.shape[1:]
        out = np.zeros((len(rows), *self.size), array.dtype)
        for n, (row, (top, left)) in enumerate(zip(rows, self.corners[places], strict=True)):
            down, up = max(top, 0), min(top + self.size[0], height)
            right, end = max(left, 0), min(left + self.size[1], width)
            if down < up and right < end:
                out[n, down - top : up - top, right - left : end - left] = array[row, down:up, right:end]
        if self.levels is None or array.dtype != np.uint16:  # labels have no intensities
            return out
        for picture, (low, high) in zip(out, self.levels[places], strict=True):
            picture[:] = np.rint(STEPS * normalise(picture / np.float32(STEPS), float(low), float(high)))
        return out


class Rows:
    """Some rows of a cached array: kept on the device if they fit, otherwise read from the memory map.

    `rows` count in the array, `places` in the cache's slices: they differ for labels, which not every slice has.
    """

    def __init__(
        self,
        array: NDArray[Any],
        rows: tuple[int, ...],
        places: tuple[int, ...],
        crop: Crop,
        device: torch.device,
        budget: int,
    ) -> None:
        self._crop, self._device = crop, device
        self._rows, self._places = np.asarray(rows, np.int64), np.asarray(places, np.int64)
        self._mapped: NDArray[Any] | None = array
        self._resident: torch.Tensor | None = None
        if len(rows) * math.prod(crop.size) * array.itemsize <= budget:
            self._resident, self._mapped = self._read(np.arange(len(rows))), None

    def __len__(self) -> int:
        return len(self._rows)

    def pick(self, at: NDArray[np.int64]) -> torch.Tensor:
        if self._resident is not None:
            return self._resident[torch.from_numpy(at).to(self._device)]
        return self._read(at)

    def _read(self, at: NDArray[np.int64]) -> torch.Tensor:
        assert self._mapped is not None
        picked = self._crop.of(self._mapped, self._rows[at], self._places[at])
        # torch indexes int16 but not uint16: reinterpret the same bits
        return torch.from_numpy(picked.view(np.int16) if picked.dtype == np.uint16 else picked).to(self._device)


class SlicePlaces:
    """Scan and depth of some rows of the cache."""

    def __init__(self, cases: Sequence[CachedCase], rows: tuple[int, ...]) -> None:
        found = {
            row: (number, k / max(1, case.slices - 1))
            for number, case in enumerate(cases)
            for k, row in enumerate(case.rows)
        }
        self.scans = np.asarray([found[row][0] for row in rows], np.int64)
        self._depths = np.asarray([found[row][1] for row in rows], np.float32)

    def of(self, at: NDArray[np.int64], device: torch.device) -> Places:
        return Places(*(torch.from_numpy(values[at]).to(device) for values in (self.scans, self._depths)))


def _intensities(steps: torch.Tensor) -> torch.Tensor:
    return ((steps.to(torch.int32) & STEPS).to(torch.float32) / STEPS).unsqueeze(1)


class LabelledStream:
    """Slices of the labelled patients, with their labels."""

    def __init__(
        self, cache: Cache, rows: tuple[int, ...], crop: Crop, order: Dealing, device: torch.device, budget: int
    ) -> None:
        found = {row: label for case in cache.cases for row, label in case.label_rows.items()}
        missing = [row for row in rows if row not in found]
        if missing:
            raise ValueError(f"row {missing[0]} has no label and cannot be in the labelled stream")
        self._images = Rows(cache.images, rows, rows, crop, device, budget)
        self._labels = Rows(cache.labels, tuple(found[row] for row in rows), rows, crop, device, budget)
        self._places = SlicePlaces(cache.cases, rows)
        self._order = order

    def __len__(self) -> int:
        return len(self._images)

    def batch(self, step: int) -> LabelledBatch:
        at = self._order.at(step)
        images = _intensities(self._images.pick(at))
        rows, places = torch.from_numpy(at).to(images.device), self._places.of(at, images.device)
        return LabelledBatch(images, self._labels.pick(at).to(torch.int64), rows, places)


class UnlabelledStream:
    """Slices without labels.  It gets an array of images, never the cache, which also has labels."""

    def __init__(
        self,
        images: NDArray[np.uint16],
        rows: tuple[int, ...],
        crop: Crop,
        order: Dealing,
        device: torch.device,
        budget: int,
        places: SlicePlaces,
    ) -> None:
        self._images = Rows(images, rows, rows, crop, device, budget)
        self._order, self._places = order, places

    def __len__(self) -> int:
        return len(self._images)

    def batch(self, step: int) -> UnlabelledBatch:
        at = self._order.at(step)
        images = _intensities(self._images.pick(at))
        return UnlabelledBatch(images, torch.from_numpy(at).to(images.device), self._places.of(at, images.device))


def streams(
    cache: Cache,
    split: Split,
    batch: tuple[int, int],
    *,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    budget: int | None = None,
    window: tuple[int, int] | None = None,
    corners: Mapping[str, tuple[int, int]] | None = None,
    levels: Mapping[str, tuple[float, float]] | None = None,
    margin: int = 0,
    everything: bool = False,
    parts: int = 0,
) -> tuple[LabelledStream, UnlabelledStream | None]:
    """Both streams of a run, with batch[0] labelled and batch[1] unlabelled slices per step.

    If every training slice is labelled, the second stream is None.  With `everything` it has the slices of the labelled
    patients too, as images alone; with `parts`, a batch has one slice from each of so many depths of each of its scans.

    `budget` is the number of bytes that each array may take on the device; by default a quarter of the free memory.
    With a `window` (rows, columns), batches contain only that part of the slices, and only it is kept on the device:
    the slice's centre, or where `corners` (case -> top, left) place it.  `margin` pixels are added on all four sides,
    so that a rotation brings in the scan and not black corners.  `levels` are the intensities of each case that become
    0 and 1.
    """
    device = torch.device(device)
    if budget is None:
        budget = (torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory_budget()) // 4
    crop = crop_of(cache, window, corners, levels, margin)
    labelled = Order(len(split.labelled), batch[0], seed=seed, stream=LABELLED, rank=rank, world_size=world_size)
    with_labels = LabelledStream(cache, split.labelled, crop, labelled, device, budget)
    rows = tuple(sorted((*split.labelled, *split.unlabelled))) if everything else split.unlabelled
    if not rows:
        return with_labels, None
    places = SlicePlaces(cache.cases, rows)
    deal = {"seed": seed, "stream": UNLABELLED, "rank": rank, "world_size": world_size}
    order = Partitions(places.scans, parts, batch[1], **deal) if parts else Order(len(rows), batch[1], **deal)
    return with_labels, UnlabelledStream(cache.images, rows, crop, order, device, budget, places)


def crop_of(
    cache: Cache,
    window: tuple[int, int] | None,
    corners: Mapping[str, tuple[int, int]] | None = None,
    levels: Mapping[str, tuple[float, float]] | None = None,
    margin: int = 0,
) -> Crop:
    """What batches contain of each cached slice; see `streams`."""
    height, width = cache.images.shape[1:]
    rows, columns = window or (height, width)
    middle = (height - rows) // 2, (width - columns) // 2
    places, ends = np.empty((len(cache.images), 2), np.int64), np.zeros((len(cache.images), 2), np.float32)
    for case in cache.cases:
        places[case.first : case.first + case.slices] = (corners or {}).get(case.name, middle)
        ends[case.first : case.first + case.slices] = (levels or {}).get(case.name, (0, 1))
    return Crop((rows + 2 * margin, columns + 2 * margin), places - margin, ends if levels else None)


def step_generator(seed: int, rank: int, step: int) -> torch.Generator:
    """The only generator that the augmentation of a step uses."""
    (state,) = np.random.SeedSequence([seed, AUGMENTATION, rank, step]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) & (2**63 - 1))
