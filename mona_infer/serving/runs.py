"""Runs of `mona train` as files: what a training has reached, and which runs there are to compare."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mona_infer.serving.state import read_json

NOT_LOSSES = ("step", "stage", "lr", "weights")


@dataclass
class Curve:
    """metrics.jsonl, read as it grows."""

    path: Path
    position: int = 0
    step: int = 0

    def read(self) -> list[dict[str, Any]]:
        """The points that were written since: {step, loss} or {step, dsc}."""
        try:
            with self.path.open("rb") as file:
                file.seek(0, 2)
                if file.tell() < self.position:  # resumed from a checkpoint: what came after it was cut off
                    self.position = 0
                file.seek(self.position)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.position += len(whole)
        points = [point for line in whole.splitlines() if (point := _point(line)) is not None]
        self.step = max([self.step, *(point["step"] for point in points)])
        return points


def _point(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        step = int(record["step"])
        if "dsc" in record:
            return {"step": step, "dsc": _finite(record["dsc"]), "loss": None}
        weights = record.get("weights") or {}
        losses = {name: value for name, value in record.items() if name not in NOT_LOSSES}
        return {"step": step, "dsc": None, "loss": _finite(sum(v * weights.get(n, 1.0) for n, v in losses.items()))}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def settings(run: Path) -> dict[str, Any]:
    """run.toml; empty where there is none yet."""
    try:
        return tomllib.loads((run / "run.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


@dataclass
class Run:
    name: str
    dsc: float | None  # best on validation
    best_step: int | None
    curve: list[tuple[int, float]]
    finished: bool
    steps: int | None = None
    method: str | None = None
    ratio: float | None = None
    model: bool = False  # it was exported
    classes: dict[str, float] = field(default_factory=dict)  # DSC by class


@dataclass
class Runs:
    """The runs of one data set."""

    folder: Path
    dataset: Path | None
    _known: dict[Path, tuple[Any, Run]] = field(default_factory=dict)

    def all(self) -> list[Run]:
        """Oldest first."""
        folders = [p.parent for p in self.folder.glob("[!.]*/run.toml")]
        mine = [run for run in folders if self._is_mine(run)]
        return [self._read(run) for run in sorted(mine, key=lambda run: (run / "run.toml").stat().st_mtime_ns)]

    def _is_mine(self, run: Path) -> bool:
        if self.dataset is None:
            return False
        trained_on = (read_json(run / "resolved.json") or {}).get("data") or settings(run).get("dataset")
        return isinstance(trained_on, str) and Path(trained_on).resolve() == self.dataset.resolve()

    def _read(self, run: Path) -> Run:
        marks = []
        for name in ("metrics.jsonl", "results.json", "model.onnx"):
            path = run / name
            marks.append(path.stat().st_mtime_ns if path.exists() else None)
        if self._known.get(run, (None,))[0] != marks:
            self._known[run] = marks, _run(run)
        return self._known[run][1]

    def free_name(self) -> str:
        stem = self.dataset.resolve().name if self.dataset is not None else "scans"
        names = (f"{stem}-served-{n}" for n in range(1, 100_000))
        return next(name for name in names if not (self.folder / name).exists())


def _run(folder: Path) -> Run:
    asked, results = settings(folder), read_json(folder / "results.json") or {}
    points = [(p["step"], p["dsc"]) for p in Curve(folder / "metrics.jsonl").read() if p["dsc"] is not None]
    best = results.get("best") or {}
    measured = results.get("validation", {}).get(results.get("chosen", ""), {}).get("classes", {})
    top = max(points, key=lambda point: point[1], default=(None, None))
    return Run(
        name=folder.name,
        dsc=best.get("dsc", top[1]),
        best_step=best.get("step", top[0]),
        curve=points,
        finished=bool(results),
        steps=asked.get("steps"),
        method=asked.get("method"),
        ratio=asked.get("ratio"),
        model=(folder / "model.onnx").is_file(),
        classes={name: entry["dsc"] for name, entry in measured.items() if _finite(entry.get("dsc")) is not None},
    )
