"""A run becomes a model file: exported, certified, and only then given its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mona_infer.engines.onnx import OnnxEngine
from mona_infer.errors import CheckFailed, InputError
from mona_infer.io.atomic import write_text
from mona_infer.models.file import FIRST_LOOK, Model, opened, packed, seal, write_model
from mona_infer.task import Task
from mona_train.export.calibration import TRAINING, calibration_slices, made_before
from mona_train.export.certify import certify, describe
from mona_train.export.first_look import first_look_file
from mona_train.export.fp16 import rounded, to_fp16
from mona_train.export.int8 import to_int8
from mona_train.export.onnx import serialise, to_onnx
from mona_train.export.parity import parity_of
from mona_train.export.provenance import provenance
from mona_train.export.tensorrt_check import check_for_tensorrt
from mona_train.run.load import Trained, load_run

PRECISIONS = ("fp32", "fp16", "int8")


def export_run(
    folder: Path, precision: str = "fp32", out: Path | None = None, *, say: Callable[[str], object] | None = None
) -> tuple[Model, dict[str, Any]]:
    """Export, certify, write; a model that fails its certificate is not written, and an older one is removed."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown --precision {precision!r}; choose {', '.join(PRECISIONS)}")
    path = out or folder / ("model.onnx" if precision == "fp32" else f"model-{precision}.onnx")
    if path.suffix != ".onnx":
        raise InputError(f"{path}: a model file must end in .onnx")
    say = say or (lambda message: None)
    trained = load_run(folder)
    if not trained.results:
        say(f"{folder} has not finished; this is its {trained.chosen} network, of step {trained.step}")
    parity = parity_of(folder, trained)
    if precision == "int8":
        try:
            slices = calibration_slices(folder, trained, parity)
        except InputError:
            made = made_before(path, trained)
            if made is None:
                raise
            say(f"{path} is kept: it was made where the training slices are, from the same weights")
            return made, made.facts["certificate"]
    facts = {**provenance(folder, trained), "precision": precision, "task": json.loads(_task(trained).to_json())}
    if trained.look is not None:
        facts[FIRST_LOOK] = packed(first_look_file(trained.look, parity, small=precision != "fp32"))
    graph = to_onnx(trained.network, trained.task.input_size)
    if precision == "fp16":
        graph = to_fp16(graph)
    elif precision == "int8":
        facts["calibration"] = {"slices": len(slices), "of": TRAINING}
        graph = to_int8(graph, slices)
    check_for_tensorrt(graph)
    content = serialise(graph)
    computed = serialise(rounded(graph)) if precision == "fp16" else content
    sealed = opened(path, seal(computed, facts))
    engine, look = OnnxEngine(sealed), OnnxEngine(sealed.first_look) if sealed.first_look else None
    if precision == "fp16":
        engine.description += ", every result rounded to fp16"
    certificate = certify(engine, parity, precision, look)
    say(describe(certificate, precision))
    beside = path.with_suffix(".certificate.json")
    if not certificate["passed"]:
        for old in (path, beside):  # of an earlier export: the run's model must not be mistaken for this one
            old.unlink(missing_ok=True)
        raise CheckFailed(f"{folder}: the {precision} export does not give the run's masks; no model was written")
    model = opened(path, seal(content, {**facts, "certificate": certificate}))
    write_model(path, model.content)
    write_text(beside, json.dumps({"model": path.name, "sha256": model.seal, **certificate}, indent=1) + "\n")
    return model, certificate


def _task(trained: Trained) -> Task:
    """With the ranges seen in training, where the run did not record them and its cache is at hand."""
    if trained.task.seen or isinstance(trained.resolved, str):
        return trained.task
    return replace(trained.task, seen=trained.resolved.task.seen)
