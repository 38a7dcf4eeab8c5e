"""Invented rows of results.jsonl, as `mona bench` writes them: for tests of tables, statistics and plots alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ("RV", "Myo", "LV")
# what each method is taken to reach; the numbers mean nothing
LEVELS = {
    "unet-f": 0.92,
    "mona": 0.89,
    "bcp": 0.88,
    "plc": 0.87,
    "mean-teacher": 0.86,
    "unet-l": 0.85,
    "em": 0.84,
}


def line(method: str = "mona", level: float | None = None, *, patients: int = 10, **values: Any) -> dict[str, Any]:
    """A row whose two frames of a patient are alike, and whose hard patients are hard for every method."""
    seed = values.get("seed", 0)
    level = LEVELS.get(method, 0.8) if level is None else level
    rng = np.random.default_rng([seed, *method.encode()])
    hard = np.random.default_rng(1).normal(0, 0.03, patients)
    cases = []
    for p in range(patients):
        own = rng.normal(0, 0.01)
        for frame in (1, 12):
            scores = {
                name: _score(float(np.clip(level + hard[p] + own + 0.02 * c + rng.normal(0, 0.005), 0.02, 0.99)))
                for c, name in enumerate(CLASSES, -1)
            }
            cases.append({"case": f"patient{p:03d}_frame{frame:02d}", "patient": f"patient{p:03d}", **scores})
    best, steps = summary(cases), values.get("steps", 4000)
    last = {**best, "dsc": best["dsc"] - 0.002}
    found = {
        "table": "acdc",
        "dataset": "acdc",
        "ratio": 0.05,
        "method": method,
        "pretrain": "supervised" if method == "mona" else "default",
        "principles": [],
        "student": "strong",
        "teacher": "weak",
        "preset": "quick",
        "steps": steps,
        "seed": seed,
        "settings": {},
        "commit": "abc1234",
        "code": "c0de000011112222",
        "version": "0.9",
        "threads": 1,
        "hardware": "a processor, 2 cores",
        "precision": "bf16-mixed",
        "seconds": 600.0 + 10 * len(method),
        "processor_seconds": 540.0 + 10 * len(method),
        "peak_memory": 10**9,
        "finished": "2026-11-18T20:00:00Z",
        "classes": list(CLASSES),
        "chosen": "best",
        "scores": {"validation": {"best": best, "last": last}},
        "cases": {"validation": cases},
        "curve": [[s, level - 0.3 * (1 - s / steps) ** 2] for s in range(500, steps + 1, 500)],
        **values,
    }
    found["row"] = hashlib.sha256(json.dumps({**found, "scores": 0, "cases": 0}).encode()).hexdigest()[:16]
    return found


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The part of validate.summary that reports read."""
    classes = {
        name: {m: float(np.mean([case[name][m] for case in cases])) for m in ("dsc", "asd")}
        for name in cases[0]
        if name not in ("case", "patient")
    }
    return {m: float(np.mean([entry[m] for entry in classes.values()])) for m in ("dsc", "asd")} | {"classes": classes}


def write(path: Path, lines: list[dict[str, Any]], end: str = "") -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines) + end, encoding="utf-8")
    return path


def _score(dsc: float) -> dict[str, float]:
    return {"dsc": dsc, "asd": 10 * (1 - dsc), "legacy_dsc": dsc, "legacy_asd": 6 * (1 - dsc)}
