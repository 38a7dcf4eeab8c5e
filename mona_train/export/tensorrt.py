"""The TensorRT plan of an exported model, certified like the model; without a GPU, what to do on a machine with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mona_infer.engines.tensorrt import PROFILE, TensorrtEngine, build_plan, facts_of, identity, plan_path, usable
from mona_infer.errors import CheckFailed, MissingPart
from mona_infer.io.atomic import write_text
from mona_infer.models.file import Model, write_model
from mona_train.export.certify import certify, describe
from mona_train.export.parity import read_parity

ENDS = ("min", "opt", "max")


def export_plan(model: Model, run: Path, *, say: Any = None) -> list[Path]:
    """Build, certify, write; a plan that fails its certificate is not written, and an older one is removed."""
    why = usable()
    if why:
        raise MissingPart(f"{why}; {instructions(model, run)}")
    timing = (
        run / "timing.cache"
    )  # kernel timings that TensorRT measured on this GPU: they make the next build much shorter
    content, times = build_plan(model, timing=timing.read_bytes() if timing.is_file() else b"")
    write_model(timing, times)
    certificate = certify(TensorrtEngine(model, content), read_parity(run / "parity.npz"), model.precision)
    if say:
        say(describe(certificate, f"{model.precision} TensorRT"))
    plan, beside = plan_path(model), plan_path(model).with_suffix(".plan.json")
    if not certificate["passed"]:
        plan.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)
        raise CheckFailed(
            f"{plan}: the masks of the TensorRT plan differ too much from the run's; the plan was not written"
        )
    facts = {**facts_of(model, content), **identity(), "profile": PROFILE, "certificate": certificate}
    write_text(beside, json.dumps(facts, indent=1) + "\n")
    write_model(plan, content)
    return [plan, beside]


def instructions(model: Model, run: Path) -> str:
    """What to do on the machine with the GPU."""
    rows, columns = model.task.input_size
    shapes = [f"--{end}Shapes=slices:{n}x1x{rows}x{columns}" for end, n in zip(ENDS, PROFILE, strict=True)]
    return (
        f"{model.path} is ready for TensorRT 11: copy {run} to a machine with a GPU and run "
        f"`mona export {run} --format trt --precision {model.precision}` there (or, for use without mona, "
        f"trtexec --onnx={model.path} --saveEngine={plan_path(model)} {' '.join(shapes)})"
    )
