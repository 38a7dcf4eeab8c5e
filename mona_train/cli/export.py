"""`mona export`: a run becomes a model file, checked against the run before it is given its name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.errors import CheckFailed, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mona_infer.models.file import Model
    from mona_infer.task import Task
    from mona_train.config.schema import Config
    from mona_train.data.resolved import Resolved
    from mona_train.export.certify import Parity

FORMATS = ("onnx", "trt")
PRECISIONS = ("fp32", "fp16", "int8")
CALIBRATION = 128  # slices from which int8 takes its scales
TRAINING = "training cases"  # where those slices are from, in the words of the model file


def export(
    run: Path | None = typer.Argument(None, metavar="[RUN]", help="The run's folder. Default: the newest in runs/."),
    format_: str = typer.Option("onnx", "--format", help="onnx, or trt: also a TensorRT plan for this machine's GPU."),
    precision: str = typer.Option("fp32", help="fp32, fp16, int8."),
    out: Path | None = typer.Option(None, help="The model file. Default: RUN/model.onnx, RUN/model-fp16.onnx, ..."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write the certificate as JSON."),
) -> None:
    """Make a model file of a run, and check on whole volumes that it gives the masks that the run's network gives.

    An export whose masks differ too much fails (exit code 1) and leaves no model.
    """
    if format_ not in FORMATS:
        raise InputError(f"expected --format {' or '.join(FORMATS)}, found {format_!r}")
    folder = run or newest_run()
    model, certificate = export_run(folder, precision, out, say=typer.echo if json_path != "-" else None)
    written = [model.path, model.path.with_suffix(".certificate.json")]
    if json_path == "-":
        typer.echo(json.dumps(certificate, indent=1))
    elif json_path:
        from mona_infer.io.atomic import write_text

        write_text(Path(json_path), json.dumps(certificate, indent=1) + "\n")
        written.append(Path(json_path))
    try:
        if format_ == "trt":
            from mona_train.export.tensorrt import export_plan

            written += export_plan(model, folder, say=typer.echo if json_path != "-" else None)
    finally:
        if json_path != "-":
            typer.echo(f"wrote {', '.join(map(str, written))}")


def newest_run(runs: Path = Path("runs")) -> Path:
    """The run whose checkpoint was written last."""
    found = [*runs.glob("*/checkpoints/last.safetensors"), *runs.glob("*/checkpoints/best.safetensors")]
    if not found:
        raise InputError(f"there is no run in {runs}; train one with `mona train`, or name one: `mona export RUN`")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent.parent


@dataclass(frozen=True)
class Trained:
    """A run's network as a checkpoint holds it."""

    config: Config
    network: Any
    task: Task
    weights: str  # their hash
    results: dict[str, Any]
    chosen: str  # "best" or "last"
    step: int
    resolved: Resolved | str  # what it learned from, or why that is not known


def load_run(folder: Path) -> Trained:
    """The network that the run itself chose: `results.json` says which; of an unfinished run the best so far."""
    from mona_infer.task import Task
    from mona_train.networks import UNet
    from mona_train.run import checkpoint
    from mona_train.run.folder import read_config

    config = read_config(folder)
    results: dict[str, Any] = {}
    if (folder / "results.json").is_file():
        try:
            results = dict(json.loads((folder / "results.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{folder / 'results.json'} cannot be read ({error})") from error
    best = (folder / "checkpoints" / "best.safetensors").is_file()
    chosen = str(results.get("chosen", "best" if best else "last"))
    if chosen not in ("best", "last"):
        raise InputError(f"{folder / 'results.json'}: expected chosen = best or last, found {chosen!r}")
    tensors, facts = checkpoint.load(folder / "checkpoints" / f"{chosen}.safetensors")
    try:
        task = Task.from_json(json.dumps(facts["task"]))
        weights = checkpoint.unpack(f"student.{facts['predicts']}", tensors)
        network = UNet(len(task.classes), width=config.width)
        network.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{folder}: the checkpoint {chosen} holds no network to export ({why})") from error
    state = network.eval().state_dict()
    step, resolved = int(facts["step"]), _resolved(folder, config)
    return Trained(config, network, task, checkpoint.weights_hash(state), results, chosen, step, resolved)


def _resolved(folder: Path, config: Config) -> Resolved | str:
    from mona_train.data.resolved import find_again, read_resolved

    kept = read_resolved(folder)
    if kept is not None:
        return kept
    try:
        return find_again(config)  # an older run has written nothing down
    except InputError as error:
        return str(error)


def export_run(
    folder: Path, precision: str = "fp32", out: Path | None = None, *, say: Any = None
) -> tuple[Model, dict[str, Any]]:
    """Export, certify, write; a model that fails its certificate is not written, and an older one is removed."""
    from mona_infer.engines.onnx import OnnxEngine
    from mona_infer.io.atomic import write_text
    from mona_infer.models.file import opened, seal, write_model
    from mona_train.export.certify import certify
    from mona_train.export.fp16 import rounded, to_fp16
    from mona_train.export.int8 import to_int8
    from mona_train.export.onnx import serialise, to_onnx
    from mona_train.export.tensorrt_check import check_for_tensorrt

    if precision not in PRECISIONS:
        raise InputError(f"expected --precision {', '.join(PRECISIONS)}, found {precision!r}")
    path = out or folder / ("model.onnx" if precision == "fp32" else f"model-{precision}.onnx")
    if path.suffix != ".onnx":
        raise InputError(f"{path}: a model file is called something.onnx")
    say = say or (lambda words: None)
    trained = load_run(folder)
    if not trained.results:
        say(f"{folder} has not finished; this is its {trained.chosen} network, of step {trained.step}")
    parity = _parity(folder, trained)
    if precision == "int8":
        try:
            slices = _calibration(folder, trained, parity)
        except InputError:
            made = _made_before(path, trained)
            if made is None:
                raise
            say(f"{path} is kept: it was made where the training slices are, from the same weights")
            return made, made.facts["certificate"]
    facts = {**provenance(folder, trained), "precision": precision, "task": json.loads(_task(trained).to_json())}
    graph = to_onnx(trained.network, trained.task.input_size)
    if precision == "fp16":
        graph = to_fp16(graph)
    elif precision == "int8":
        facts["calibration"] = {"slices": len(slices), "of": TRAINING}
        graph = to_int8(graph, slices)
    check_for_tensorrt(graph)
    content = serialise(graph)
    computed = serialise(rounded(graph)) if precision == "fp16" else content
    engine = OnnxEngine(opened(path, seal(computed, facts)))
    if precision == "fp16":
        engine.description += ", every result rounded to fp16"
    certificate = certify(engine, parity, precision)
    say(words(certificate, precision))
    beside = path.with_suffix(".certificate.json")
    if not certificate["passed"]:
        for old in (path, beside):  # of an earlier export: the run's model must not be mistaken for this one
            old.unlink(missing_ok=True)
        raise CheckFailed(f"{folder}: the {precision} export does not give the run's masks; no model was written")
    model = opened(path, seal(content, {**facts, "certificate": certificate}))
    write_model(path, model.content)
    write_text(beside, json.dumps({"model": path.name, "sha256": model.seal, **certificate}, indent=1) + "\n")
    return model, certificate


def words(certificate: dict[str, Any], precision: str) -> str:
    changed, total = certificate["voxels_changed"], certificate["voxels"]
    dsc = ", ".join(f"{n} {'absent' if v is None else f'{v:.5f}'}" for n, v in certificate["dsc"].items())
    gap = certificate["largest_logit_difference"]
    return (
        f"{precision} against PyTorch on {len(certificate['cases'])} whole volumes ({certificate['slices']} slices): "
        f"{changed:,} of {total:,} voxels changed class; DSC {dsc}; "
        f"largest logit difference {'not finite' if gap is None else f'{gap:.2g}'}: "
        + ("passed" if certificate["passed"] else "FAILED")
    )


def provenance(folder: Path, trained: Trained) -> dict[str, Any]:
    """Where the model comes from.  No time and no path: the same run exports to the same bytes."""
    from importlib.metadata import version

    from mona_infer import __version__
    from mona_train.data.adapters import adapters

    config, results, resolved = trained.config, trained.results, trained.resolved
    name, kind = Path(config.dataset).name, config.dataset
    if not isinstance(resolved, str):
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


def _task(trained: Trained) -> Task:
    """With the ranges seen in training, where the run did not record them and its cache is at hand."""
    if trained.task.seen or isinstance(trained.resolved, str):
        return trained.task
    return replace(trained.task, seen=trained.resolved.task.seen)


def _parity(folder: Path, trained: Trained) -> Parity:
    """The run's own parity set; of a run without one (unfinished, or older) it is made from its data, if found."""
    from mona_train.export.certify import FULL, keep, read_parity

    path = folder / "parity.npz"
    parity = read_parity(path) if path.is_file() else None
    # Older versions let a network answer in the precision it was trained in; an export answers in 32 bit.
    rounded = parity is not None and FULL not in (parity.precision, trained.config.precision)
    if parity is None or parity.weights != trained.weights or rounded:
        try:
            if isinstance(trained.resolved, str):
                raise InputError(trained.resolved)
            cases, parts = trained.resolved.cases(), trained.resolved.split
            held = [[case for case in cases if case.name in names] for names in (parts.val, parts.test)]
            keep(trained.network, held[0] or held[1] or cases, trained.task, path)
        except InputError as error:
            raise InputError(
                f"{folder} has no parity set for its {trained.chosen} network, and none can be made: {error}"
            ) from error
        parity = read_parity(path)
    return parity


def _calibration(folder: Path, trained: Trained, parity: Parity) -> NDArray[np.float32]:
    """Slices that int8 takes its scales from: of training cases, so that the certificate is made on others."""
    import numpy as np

    from mona_infer.task import centred
    from mona_train.export.certify import STEPS

    try:
        if isinstance(trained.resolved, str):
            raise InputError(trained.resolved)
        cache = trained.resolved.open_cache()
    except InputError as error:
        raise InputError(
            f"int8 takes its scales from training slices, and those of {folder} are not at hand ({error}); export "
            f"where they are, or prepare them again with `mona train --resume {folder} --data FOLDER`"
        ) from error
    parts = trained.resolved.split
    certified = {row for case in cache.cases if case.name in parity.cases for row in case.rows}
    rows = np.array(sorted({*parts.labelled, *parts.unlabelled} - certified))
    if not len(rows):
        raise InputError(
            f"{folder}: int8 takes its scales from slices that the export is not checked on, and every case of this "
            "run is needed for the check; export fp32 or fp16, or add a validation or test case to the data set"
        )
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, CALIBRATION).round().astype(np.int64))]
    window = centred(trained.task.size, trained.task.input_size)
    slices: NDArray[np.float32] = cache.images[chosen][:, *window].astype(np.float32) / np.float32(STEPS)
    return slices


def _made_before(path: Path, trained: Trained) -> Model | None:
    """An int8 model of these weights with scales from training slices: a run is copied to a GPU without its data."""
    from mona_infer.models.file import read_model

    try:
        model = read_model(path)
    except InputError:
        return None
    of = model.facts.get("calibration", {}).get("of"), model.facts.get("run", {}).get("weights")
    return model if of == (TRAINING, trained.weights) else None
