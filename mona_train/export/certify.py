"""The certificate: how far an export's masks lie from those of the network it was made from."""

from __future__ import annotations

from typing import Any

import numpy as np

from mona_infer.engines.base import Engine, in_batches
from mona_train.export.parity import Parity, intensities

VOXELS, DSC = 1e-4, {"fp32": 0.999, "fp16": 0.999, "int8": 0.99}  # the limits: share of changed voxels, least DSC


def certify(engine: Engine, parity: Parity, precision: str = "fp32", look: Engine | None = None) -> dict[str, Any]:
    """How far an engine's answers on the parity set lie from PyTorch's, and whether that is near enough.

    `look` runs the first look, if the Task has one: it must find the same pixels, every one.
    """
    names = [c.name for c in parity.task.classes]
    given, largest, changed = parity.inputs(), 0.0, 0
    both, ours, theirs = (np.zeros(len(names), np.int64) for _ in range(3))
    for start, answer in in_batches(engine, given):
        found, wanted = answer.argmax(axis=1), parity.classes[start : start + len(answer)]
        changed += int((found != wanted).sum())
        both += np.bincount(found[found == wanted], minlength=len(names))
        ours += np.bincount(found.ravel(), minlength=len(names))
        theirs += np.bincount(wanted.ravel(), minlength=len(names))
        for row in np.nonzero((parity.sampled >= start) & (parity.sampled < start + len(answer)))[0]:
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
    first_look = _first_look(look, parity) if look is not None else None
    if first_look is not None:
        passed = passed and first_look["voxels_changed"] == 0
    return {
        "passed": bool(passed),
        "engine": engine.description,
        "cases": parity.cases,
        "slices": len(given),
        "largest_logit_difference": largest if np.isfinite(largest) else None,
        "voxels": total,
        "voxels_changed": changed,
        "dsc": dsc,
        **({"first_look": first_look} if first_look is not None else {}),
        "limits": {"dsc": limit, **({} if precision == "int8" else {"share_of_voxels_changed": VOXELS})},
    }


def look_changes(engine: Engine, parity: Parity) -> int:
    """In how many pixels the first look answers something else than PyTorch's."""
    assert parity.look is not None and parity.organ is not None
    answers = [answer.argmax(axis=1) for _, answer in in_batches(engine, intensities(parity.look))]
    return int((np.concatenate(answers) != parity.organ).sum())


def _first_look(engine: Engine, parity: Parity) -> dict[str, int]:
    assert parity.look is not None and parity.organ is not None
    changed = look_changes(engine, parity)
    return {"slices": len(parity.look), "voxels": parity.organ.size, "voxels_changed": changed}


def describe(certificate: dict[str, Any], precision: str) -> str:
    changed, total = certificate["voxels_changed"], certificate["voxels"]
    dsc = ", ".join(f"{n} {'absent' if v is None else f'{v:.5f}'}" for n, v in certificate["dsc"].items())
    gap, look = certificate["largest_logit_difference"], certificate.get("first_look")
    first = f"first look: {look['voxels_changed']:,} of {look['voxels']:,} voxels changed; " if look else ""
    return (
        f"{precision} against PyTorch on {len(certificate['cases'])} whole volumes ({certificate['slices']} slices): "
        f"{changed:,} of {total:,} voxels changed class; DSC {dsc}; {first}"
        f"largest logit difference {'not finite' if gap is None else f'{gap:.2g}'}: "
        + ("passed" if certificate["passed"] else "FAILED")
    )
