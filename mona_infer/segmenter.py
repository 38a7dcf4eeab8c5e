"""`Segmenter`: a model and an engine, called with a scan, give its mask.

from mona_infer import Segmenter, read_volume
mask = Segmenter()(read_volume("scan.nii.gz"))
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import AUTO, Engine, choose, choose_both
from mona_infer.errors import InputError
from mona_infer.geometry.probabilities import STEPS, Logits, softmax
from mona_infer.geometry.stack import SliceStack
from mona_infer.geometry.windows import Box
from mona_infer.models.file import Model, read_model
from mona_infer.models.find import bundled_or
from mona_infer.segmenting.components import keep_largest
from mona_infer.segmenting.first_look import NOTHING, UNCERTAIN, look
from mona_infer.segmenting.holes import fill_holes
from mona_infer.segmenting.scan_kind import check_scan
from mona_infer.segmenting.test_time_augmentation import mirror_averaged
from mona_infer.system.memory_budget import TooLarge, memory_budget, resident
from mona_infer.task import LOOK, Task
from mona_infer.volume import Volume
from mona_kernels.native import Labels

AHEAD = 2  # batches that are read before the network asks for them, and that wait to be restored after it
PLANNED = 0.9  # of `max_ram`; the rest is for what allocators keep back


@dataclass(frozen=True, eq=False)
class Segmentation:
    """A mask on its scan's grid and, where asked for, how sure the network was."""

    mask: Volume
    stack: SliceStack
    confidence: dict[str, float] = field(default_factory=dict)  # class -> mean probability where it was chosen
    slice_confidence: tuple[float | None, ...] = ()  # of all classes in each slice of `stack`; None: nothing there
    # class -> uint8, in steps of 1/255.  At every voxel the largest is that of the mask's class; where a piece was
    # removed or a hole filled afterwards, they still show what the network saw.
    probabilities: dict[str, Volume] = field(default_factory=dict)
    box: Box | None = None  # where the first look found the organ, in pixels of `stack.frame`
    warnings: tuple[str, ...] = ()  # what the user should know about this mask


class Segmenter:
    """Ready to segment one scan after another; a call is safe from one thread at a time.

    `model` is a file that `mona export` wrote, the folder of a run, the name of a bundled model (`mona models`), or a
    file already read; None takes the best bundled model.  `engine` is "auto", a name of `engines()`,
    or an engine that is ready to run; with such an engine a Task may stand in for the model, as in training.
    `first_look` runs the small network of a Task with a first look; by default the model's own, on an engine of the
    same kind.  `tta` averages over the slice and its mirror images: four times the work.  `largest` keeps only the
    largest connected piece of every class, not just of those that the Task names.  `batch` and `threads` default to
    what suits the engine and to all cores.  `max_ram` is how many bytes this process may hold: batches are made smaller
    to fit, and a scan that does not fit is refused.  So is a scan of another modality than the model's and, by a
    bundled model, one that is plainly not its kind; `force` segments them anyway.
    """

    def __init__(
        self,
        model: Model | Task | Path | str | None = None,
        *,
        engine: str | Engine = AUTO,
        first_look: Engine | None = None,
        tta: bool = False,
        largest: bool = False,
        batch: int | None = None,
        threads: int = 0,
        max_ram: int = 0,
        force: bool = False,
    ) -> None:
        self.model: Model | None = None
        if isinstance(model, Task):
            if isinstance(engine, str):
                raise TypeError("a Task alone has no network: give the engine that runs it")
            self.task, self.engine = model, engine
        else:
            self.model = model if isinstance(model, Model) else read_model(bundled_or(model))
            self.task = self.model.task
            self.engine, first_look = _engines(self.model, engine, first_look, threads)
        if self.task.first_look and first_look is None:
            raise TypeError("this Task needs a first look: give the engine that runs it")
        self.first_look = first_look if self.task.first_look else None
        self.tta, self.largest = tta, largest
        self.batch = batch or self.engine.batch
        if self.batch < 1:
            raise InputError(f"the batch must be 1 or greater, found {batch}")
        self.max_ram, self.force = max_ram, force
        self._workspace = 0  # bytes that the engine takes for a slice, once measured
        self._most = 0  # slices that it was given at a time: what it took for them, it keeps

    def __call__(self, volume: Volume) -> Volume:
        """The mask of a scan: label ids of the Task, on the scan's own grid."""
        return self.segment(volume).mask

    def segment(
        self,
        volume: Volume,
        *,
        confidence: bool = False,
        probabilities: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Segmentation:
        """The mask, and how sure the network was of it; `progress` is told how many slices of how many are done."""
        if self.model is not None:
            check_scan(volume, self.model, force=self.force)
        stack, box = SliceStack(volume, self.task), None
        warnings: tuple[str, ...] = ()
        if self.first_look is not None:
            box, certain = look(stack, self.first_look, 1 if self.max_ram else 0)
            stack = stack.aimed_at(box)
            warnings = (NOTHING,) if box is None else (UNCERTAIN,) if certain < self.task.least_certain else ()
        batch = self._fitting_batch(stack, probabilities) if self.max_ram else self.batch
        step = _slices(batch, stack)
        mask, names = stack.empty_mask(), [c.name for c in self.task.classes]
        sure = _Confidence(len(names)) if confidence else None
        maps = [np.zeros(volume.shape, np.uint8, order="F") for _ in names] if probabilities else []

        def restore(start: int, logits: Logits) -> None:
            seen = stack.restore(mask, start, logits, maps)
            if sure is not None:
                sure.add(softmax(seen))
            if progress is not None:
                progress(min(start + step, len(stack)), len(stack))

        self._stream(stack, batch, restore)
        self._post_process(mask, stack)
        found = volume.with_voxels(mask)
        return Segmentation(
            found,
            stack,
            dict(zip(names, sure.means(), strict=True)) if sure is not None else {},
            tuple(sure.slices) if sure is not None else (),
            {name: _probability(volume, steps) for name, steps in zip(names, maps, strict=False)},
            box,
            warnings,
        )

    def _post_process(self, mask: Labels, stack: SliceStack) -> None:
        """The largest piece before its holes: a hole may hold another piece."""
        if self.largest or self.task.keep_largest:
            keep_largest(mask, None if self.largest else self.task.keep_largest, stack.slicing.view)
        for label in self.task.fill_holes:
            fill_holes(stack.slicing.view(mask), label)

    def reading_budget(self, probabilities: bool) -> tuple[int, int]:
        """Bytes that a scan and what is held beside it may take now, and how many of them each voxel needs beside."""
        beside = self._beside(probabilities)
        if not self.max_ram:
            return memory_budget(), beside
        workspace, planned = self._network_workspace(), int(PLANNED * self.max_ram)
        used = self._resident() + workspace
        if used >= planned:  # a scan then told to need a little more than is allowed would be told wrong
            raise TooLarge("mona with this model, before any scan is read,", used, planned, "allow more memory")
        return planned - used, beside

    def _beside(self, probabilities: bool) -> int:
        """Bytes of a voxel in the mask and, where asked for, in the probability maps."""
        return (1 if max(c.id for c in self.task.classes) < 256 else 2) + probabilities * len(self.task.classes)

    def _resident(self) -> int:
        """Bytes held now, but for what the engine keeps from earlier slices and will use again."""
        return resident() - self._most * self._workspace

    def _network_workspace(self) -> int:
        """Bytes that the engine takes for one slice: measured, since only the engine knows how it runs the network."""
        if not self._workspace:
            if self.first_look is not None:  # what it takes is then part of what is held
                self.first_look.run(np.zeros((1, LOOK, LOOK), np.float32))
            before = resident()
            for _ in range(2):  # ONNX Runtime plans its memory in the first run and takes it anew in the second
                self.engine.run(np.zeros((1, *self.task.input_size), np.float32))
            least = 4 * math.prod(self.task.input_size) * (1 + len(self.task.classes))
            self._workspace, self._most = max(resident() - before, least), 1
        return self._workspace

    def _fitting_batch(self, stack: SliceStack, probabilities: bool) -> int:
        """As many inputs of the network at a time as `max_ram` allows beside the mask that is about to be made."""
        inside = math.prod(self.task.input_size)
        waiting = 4 * (AHEAD + 1) * (1 + len(self.task.classes)) * inside * len(stack.windows)  # inputs and logits
        each = waiting + stack.working_bytes(probabilities)  # for a slice on its way
        workspace = self._network_workspace()
        needed = self._resident() + self._beside(probabilities) * math.prod(stack.volume.shape)
        planned = int(PLANNED * self.max_ram)
        if needed + each + workspace > planned:
            least = needed + each + workspace
            raise TooLarge(stack.volume.source, least, planned, "allow that much, or crop the scan")
        fitting = (n for n in range(self.batch, 0, -1) if needed + _slices(n, stack) * each + n * workspace <= planned)
        batch = next(fitting)
        self._most = max(self._most, batch)
        return batch

    def _stream(self, stack: SliceStack, batch: int, restore: Callable[[int, Logits], None]) -> None:
        """Batches through the network while the next are read and the last are restored, `AHEAD` of each at most."""
        step = _slices(batch, stack)
        starts = iter(range(0, len(stack), step))
        ahead: deque[tuple[int, Future[NDArray[np.float32]]]] = deque()
        behind: deque[Future[None]] = deque()
        with ThreadPoolExecutor(1) as reading, ThreadPoolExecutor(1) as restoring:

            def ask() -> None:
                for start in starts:
                    stop = min(start + step, len(stack))
                    ahead.append((start, reading.submit(stack.read, start, stop)))
                    return

            for _ in range(AHEAD):
                ask()
            while ahead:
                start, slices = ahead.popleft()
                given = slices.result()
                ask()
                answers = [self._network(given[n : n + batch]) for n in range(0, len(given), batch)]
                logits = answers[0] if len(answers) == 1 else np.concatenate(answers)
                if len(behind) == AHEAD:
                    behind.popleft().result()
                behind.append(restoring.submit(restore, start, logits))
            for done in behind:
                done.result()

    def _network(self, slices: NDArray[np.float32]) -> Logits:
        logits = mirror_averaged(self.engine, slices) if self.tta else self.engine.run(slices)
        if not math.isfinite(float(logits.sum())):  # an fp16 network that overflows would give a black mask
            smaller = self.model is not None and self.model.precision != "fp32"
            remedy = "export it with --precision fp32" if smaller else "the run may be broken"
            where = self.model.path if self.model is not None else self.engine.description
            raise InputError(f"{where}: the network's output for this scan is not finite; {remedy}")
        return np.ascontiguousarray(logits)


def _engines(
    model: Model, engine: str | Engine, first_look: Engine | None, threads: int
) -> tuple[Engine, Engine | None]:
    """What runs a model and its first look; an engine that was given is taken as it is."""
    if isinstance(engine, str):
        if first_look is not None or model.first_look is None:
            return choose(engine, model, threads=threads), first_look
        return choose_both(engine, model, threads=threads)
    if first_look is None and model.first_look is not None:
        first_look = choose("cpu", model.first_look, threads=threads)
    return engine, first_look


def _slices(batch: int, stack: SliceStack) -> int:
    """Slices whose windows make up a batch; one slice's may be more than that, and are then run in several."""
    return max(1, batch // len(stack.windows))


class _Confidence:
    """The mean probability of the class that won, over the pixels (of the network's size) where it did."""

    def __init__(self, classes: int) -> None:
        self._sum, self._count = np.zeros(classes), np.zeros(classes, np.int64)
        self.slices: list[float | None] = []  # over the pixels of each slice that are not background

    def add(self, chances: Logits) -> None:
        for each in chances:
            winner, chance = each.argmax(axis=0).ravel(), each.max(axis=0).ravel()
            total = np.bincount(winner, weights=chance, minlength=len(self._sum))
            count = np.bincount(winner, minlength=len(self._sum))
            self._sum += total
            self._count += count
            self.slices.append(float(total[1:].sum() / count[1:].sum()) if count[1:].any() else None)

    def means(self) -> list[float]:
        """NaN for a class that was nowhere chosen."""
        return [float(s / n) if n else math.nan for s, n in zip(self._sum, self._count, strict=True)]


def _probability(volume: Volume, steps: NDArray[np.uint8]) -> Volume:
    found = volume.with_voxels(steps)
    return Volume(found.voxels, found.affine, slope=1 / STEPS, source=volume.source, header=volume.header)
