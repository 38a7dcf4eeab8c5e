"""The parity set: whole volumes with the PyTorch network's answer, and the certificate that an export gives the same.

    slices    uint16 (n, rows, columns)   what the network was given, in steps of 1/65535 as in training
    classes   uint8  (n, rows, columns)   what it answered
    logits    float32 (m, classes, rows, columns)   the whole answer, for the slices `sampled`
    volumes   int64  (n,)   which volume a slice belongs to
    about     JSON: the Task, the names of the cases, the hash of the weights that answered, their precision

It lies in the run's folder, so that an export can be checked on a machine that has no data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Engine
from mona_infer.errors import InputError
from mona_infer.geometry.stack import SliceStack
from mona_infer.io.atomic import atomic_path
from mona_infer.task import Task
from mona_train.data.case import Case

VOLUMES, PIXELS = 4, 8 << 20  # volumes at most, and pixels after which no further one is begun (16 MB before packing)
SAMPLED = 12  # slices whose logits are kept: 32 bits for every class and pixel add up
STEPS = 65535
BATCH = 8
FULL = "32-true"
VOXELS, DSC = 1e-4, {"fp32": 0.999, "fp16": 0.999, "int8": 0.99}  # the limits: share of changed voxels, least DSC


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

    def inputs(self) -> NDArray[np.float32]:
        return self.slices.astype(np.float32) / np.float32(STEPS)


def keep(network: Any, cases: Iterable[Case], task: Task, path: Path) -> None:
    """Write the parity set of a network: a few of `cases`, spread evenly; without cases, nothing."""
    import torch

    from mona_train.engine.full_precision import full_precision
    from mona_train.run.checkpoint import weights_hash

    every = list(cases)
    chosen = every[:: max(1, len(every) // VOLUMES)][:VOLUMES]
    slices: list[NDArray[np.uint16]] = []
    names = []
    for case in chosen:
        if slices and sum(s.size for s in slices) > PIXELS:
            break
        stack = SliceStack(case.image(), task)
        read = [np.rint(part * np.float32(STEPS)).astype(np.uint16) for _, part in stack.batches(BATCH)]
        slices.append(np.concatenate(read))
        names.append(case.name)
    if not slices:
        return
    given = np.concatenate(slices)
    sampled = np.unique(np.linspace(0, len(given) - 1, SAMPLED).round().astype(np.int64))
    classes = np.empty(given.shape, np.uint8)
    logits = np.empty((len(sampled), len(task.classes), *given.shape[1:]), np.float32)
    device = next(network.parameters()).device
    network.eval()
    with torch.no_grad(), full_precision(device):
        for start in range(0, len(given), BATCH):
            part = given[start : start + BATCH].astype(np.float32) / np.float32(STEPS)
            answer = network(torch.from_numpy(part)[:, None].to(device)).logits.float().cpu().numpy()
            classes[start : start + BATCH] = answer.argmax(axis=1)
            for row in np.nonzero((sampled >= start) & (sampled < start + BATCH))[0]:
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
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)


def read_parity(path: Path) -> Parity:
    """Read what `keep` wrote; nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as found:
            about = json.loads(str(found["about"]))
            names = ("slices", "classes", "logits", "sampled", "volumes")
            arrays = {name: found[name] for name in names}
        task = Task.from_json(json.dumps(about["task"]))
        weights, precision = str(about["weights"]), str(about.get("precision", ""))
        parity = Parity(**arrays, task=task, cases=list(about["cases"]), weights=weights, precision=precision)
        n, size = len(parity.slices), task.input_size
        if parity.slices.shape != (n, *size) or parity.classes.shape != (n, *size) or parity.volumes.shape != (n,):
            raise ValueError("its parts do not fit together")
        if parity.logits.shape != (len(parity.sampled), len(task.classes), *size) or parity.sampled.max() >= n:
            raise ValueError("its parts do not fit together")
    except Exception as error:  # what a damaged zip or array can raise has no common base
        raise InputError(f"{path} is no parity set, or a damaged one ({error})") from error
    return parity


def certify(engine: Engine, parity: Parity, precision: str = "fp32") -> dict[str, Any]:
    """How far an engine's answers on the parity set lie from PyTorch's, and whether that is near enough."""
    names = [c.name for c in parity.task.classes]
    given, largest, changed = parity.inputs(), 0.0, 0
    both, ours, theirs = (np.zeros(len(names), np.int64) for _ in range(3))
    for start in range(0, len(given), BATCH):
        answer = engine.run(given[start : start + BATCH])
        found, wanted = answer.argmax(axis=1), parity.classes[start : start + BATCH]
        changed += int((found != wanted).sum())
        both += np.bincount(found[found == wanted], minlength=len(names))
        ours += np.bincount(found.ravel(), minlength=len(names))
        theirs += np.bincount(wanted.ravel(), minlength=len(names))
        for row in np.nonzero((parity.sampled >= start) & (parity.sampled < start + BATCH))[0]:
            gap = float(np.abs(answer[parity.sampled[row] - start] - parity.logits[row]).max())
            largest = max(largest, gap) if np.isfinite(gap) else float("inf")
    total = parity.classes.size
    dsc = {
        name: (2 * int(b) / int(a + c) if a + c else None)  # None: the class is in neither mask
        for name, b, a, c in zip(names[1:], both[1:], ours[1:], theirs[1:], strict=True)
    }
    limit = DSC[precision]
    few = precision == "int8" or changed <= VOXELS * total  # int8 is held to its DSC alone
    passed = few and np.isfinite(largest) and all(value is None or value >= limit for value in dsc.values())
    return {
        "passed": bool(passed),
        "engine": engine.description,
        "cases": parity.cases,
        "slices": len(given),
        "largest_logit_difference": largest if np.isfinite(largest) else None,
        "voxels": total,
        "voxels_changed": changed,
        "dsc": dsc,
        "limits": {"dsc": limit, **({} if precision == "int8" else {"share_of_voxels_changed": VOXELS})},
    }
