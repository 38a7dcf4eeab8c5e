"""Where a model comes from, as its file tells it: run, data, licence, code, scores."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from mona_infer import __version__
from mona_train.data.adapters import adapters
from mona_train.data.resolved import Resolved
from mona_train.run.load import Trained


def provenance(folder: Path, trained: Trained) -> dict[str, Any]:
    """Where the model comes from.  No time and no path: the same run exports to the same bytes."""
    config, results, resolved = trained.config, trained.results, trained.resolved
    name, kind = Path(config.dataset).name, config.dataset
    if isinstance(resolved, Resolved):
        name, kind = resolved.dataset, resolved.adapter
    adapter = adapters().get(kind)
    licence = f"trained on {adapter.title}: {adapter.licence}" if adapter else "that of the data it was trained on"
    measured = {
        part: {"dsc": found["dsc"], "classes": {n: e["dsc"] for n, e in found["classes"].items()}}
        for part, found in (
            ("validation", results.get("validation", {}).get(trained.chosen)),
            ("test", results.get("test")),
        )
        if found
    }
    data = {"dataset": name, "method": config.method, "ratio": config.ratio, "split_seed": config.split_seed}
    code = {"mona": __version__, **{part: version(part) for part in ("torch", "onnx")}}
    run = {
        "name": folder.resolve().name,
        "weights": trained.weights,
        "checkpoint": trained.chosen,
        "step": trained.step,
    }
    return {"run": run, "data": data, "code": code, "licence": licence, "metrics": measured}
