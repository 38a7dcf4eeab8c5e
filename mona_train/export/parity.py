"""The parity set: whole volumes with the PyTorch network's answer, which an export has to give too.

    slices    uint16 (n, rows, columns)   what the network was given, in steps of 1/65535 as in training
    classes   uint8  (n, rows, columns)   what it answered
    logits    float32 (m, classes, rows, columns)   the whole answer, for the slices `sampled`
    volumes   int64  (n,)   which volume a slice belongs to
    look      uint16 (k, 64, 64)   what the first look was given, if the Task has one
    organ     uint8  (k, 64, 64)   what it answered: it decides where the windows are
    about     JSON: the Task, the names of the cases, the hash of the weights that answered, their precision

It lies in the run's folder, so that an export can be checked on a machine that has no data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import in_batches
from mona_infer.errors import InputError
from mona_infer.geometry.stack import SliceStack
from mona_infer.io.atomic import atomic_path
from mona_infer.segmenting.first_look import find_box, look_frames
from mona_infer.task import Task
from mona_train.data.case import Case

if TYPE_CHECKING:
    from mona_train.run.load import Trained

VOLUMES, PIXELS = 4, 8 << 20  # volumes at most, and pixels after which no further one is begun (16 MB before packing)
SAMPLED = 12  # slices whose logits are kept: 32 bits for every class and pixel add up
STEPS = 65535
BATCH = 8  # slices read at a time
FULL = "32-true"


@dataclass(frozen=True, eq=False)
class Parity:
    slices: NDArray[np.uint16]
    classes: NDArray[np.uint8]
    logits: NDArray[np.float32]
    sampled: NDArray[np.int64]
    volumes: NDArray[np.int64]
    task: Task
    cases: list[str]
    weights: str
    precision: str  # "" in parity sets of older versions, which computed in the precision of training
    look: NDArray[np.uint16] | None = None
    organ: NDArray[np.uint8] | None = None

    def inputs(self) -> NDArray[np.float32]:
        return intensities(self.slices)


def intensities(steps: NDArray[np.uint16]) -> NDArray[np.float32]:
    return steps.astype(np.float32) / np.float32(STEPS)


def _steps(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return np.asarray(np.rint(values * np.float32(STEPS)), np.uint16)


def keep(network: Any, cases: Iterable[Case], task: Task, path: Path, look: Any = None) -> None:
    """Write the parity set of a network: a few of `cases`, spread evenly; without cases, nothing.

    `look` is the first look's network, if the Task has one.
    """
    from mona_train.engine.torch_engine import TorchEngine
    from mona_train.run.checkpoint import weights_hash

    every = list(cases)
    chosen = every[:: max(1, len(every) // VOLUMES)][:VOLUMES]
    slices: list[NDArray[np.uint16]] = []
    looked: list[tuple[NDArray[np.uint16], NDArray[np.uint8]]] = []
    names = []
    for case in chosen:
        if slices and sum(s.size for s in slices) > PIXELS:
            break
        stack = SliceStack(case.image(), task)
        if look is not None:
            coarse = _steps(look_frames(stack))
            found = np.concatenate([answer for _, answer in in_batches(TorchEngine(look), intensities(coarse))])
            looked.append((coarse, found.argmax(axis=1).astype(np.uint8)))
            stack = stack.aimed_at(find_box(found, stack.frame))
        slices.append(np.concatenate([_steps(part) for _, part in stack.batches(BATCH)]))
        names.append(case.name)
    if not slices:
        return
    given = np.concatenate(slices)
    sampled = np.unique(np.linspace(0, len(given) - 1, SAMPLED).round().astype(np.int64))
    classes = np.empty(given.shape, np.uint8)
    logits = np.empty((len(sampled), len(task.classes), *given.shape[1:]), np.float32)
    for start, answer in in_batches(TorchEngine(network), intensities(given)):
        classes[start : start + len(answer)] = answer.argmax(axis=1)
        for row in np.nonzero((sampled >= start) & (sampled < start + len(answer)))[0]:
            logits[row] = answer[sampled[row] - start]
    volumes = np.repeat(np.arange(len(slices)), [len(s) for s in slices])
    about = {"task": json.loads(task.to_json()), "cases": names, "weights": weights_hash(network.state_dict())}
    about["precision"] = FULL
    arrays: dict[str, Any] = {
        "slices": given,
        "classes": classes,
        "logits": logits,
        "sampled": sampled,
        "volumes": volumes,
    }
    if looked:
        arrays["look"], arrays["organ"] = (np.concatenate(parts) for parts in zip(*looked, strict=True))
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def read_parity(path: Path) -> Parity:
    """Read what `keep` wrote; nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as found:
            about = json.loads(str(found["about"]))
            names = ("slices", "classes", "logits", "sampled", "volumes")
            arrays = {name: found[name] for name in (*names, *({"look", "organ"} & set(found.files)))}
        task = Task.from_json(json.dumps(about["task"]))
        weights, precision = str(about["weights"]), str(about.get("precision", ""))
        parity = Parity(**arrays, task=task, cases=list(about["cases"]), weights=weights, precision=precision)
        n, size = len(parity.slices), task.input_size
        if parity.slices.shape != (n, *size) or parity.classes.shape != (n, *size) or parity.volumes.shape != (n,):
            raise ValueError("its parts do not fit together")
        if parity.logits.shape != (len(parity.sampled), len(task.classes), *size) or parity.sampled.max() >= n:
            raise ValueError("its parts do not fit together")
        if task.first_look and (parity.look is None or parity.organ is None or parity.look.shape != parity.organ.shape):
            raise ValueError("it has no first look")
    except Exception as error:  # what a damaged zip or array can raise has no common base
        raise InputError(f"{path} is not a parity set, or is damaged ({error})") from error
    return parity


def parity_of(folder: Path, trained: Trained) -> Parity:
    """The run's own parity set; for a run without one (unfinished, or older) it is made from its data, if at hand."""
    path = folder / "parity.npz"
    parity = read_parity(path) if path.is_file() else None
    # Older versions let a network answer in the precision it was trained in; an export answers in 32 bit.
    rounded = parity is not None and FULL not in (parity.precision, trained.config.precision)
    if parity is None or parity.weights != trained.weights or rounded:
        try:
            resolved = trained.require_data()
            cases, parts = resolved.cases(), resolved.split
            held = [[case for case in cases if case.name in names] for names in (parts.val, parts.test)]
            keep(trained.network, held[0] or held[1] or cases, trained.task, path, trained.look)
        except InputError as error:
            raise InputError(
                f"{folder} has no parity set for its {trained.chosen} network, and none can be made: {error}"
            ) from error
        parity = read_parity(path)
    return parity
