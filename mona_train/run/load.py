"""A run read back: its settings, its results, what it learned from, and the network that it chose."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from mona_infer.errors import InputError
from mona_infer.task import Task
from mona_train.config.schema import Config
from mona_train.data.resolved import Resolved, find_again, read_resolved
from mona_train.engine.first_look import load_first_look
from mona_train.engine.post_processing import RULES
from mona_train.methods.registry import stages_of
from mona_train.run import checkpoint
from mona_train.run.folder import read_config


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
    network: nn.Module
    task: Task
    weights: str  # their hash
    results: dict[str, Any]
    chosen: str  # "best" or "last"
    step: int
    resolved: Resolved | str  # what it learned from, or why that is not known
    look: nn.Module | None = None  # the first look's network, if the Task has one

    def require_data(self) -> Resolved:
        """What it learned from, or an error that says why that is not known."""
        if isinstance(self.resolved, str):
            raise InputError(self.resolved)
        return self.resolved


def load_run(folder: Path) -> Trained:
    """The network that the run itself chose: `results.json` says which; for an unfinished run, the best so far."""
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
        who = str(results.get("network", facts.get("answers", "student")))
        predicts = str(results.get("predicts", facts["predicts"]))
        weights = checkpoint.unpack(f"{who}.{predicts}", tensors)
        task = _post_processed(task, results)
        network = _network(config, predicts, len(task.classes))
        network.load_state_dict(weights)
    except (KeyError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"{folder}: the checkpoint {chosen} holds no network to export ({why})") from error
    state = network.eval().state_dict()
    step, resolved = int(facts["step"]), _resolved(folder, config)
    look = load_first_look(folder) if task.first_look else None
    return Trained(config, network, task, checkpoint.weights_hash(state), results, chosen, step, resolved, look)


def _post_processed(task: Task, results: dict[str, Any]) -> Task:
    """With what the end of the run measured to be worth it."""
    chosen, ids = results.get("post_processing", {}), {c.name: c.id for c in task.classes}
    rules: dict[str, Any] = {rule: tuple(ids[name] for name in chosen.get(rule, ())) for rule in RULES}
    return replace(task, **rules)


def _network(config: Config, name: str, classes: int) -> nn.Module:
    """The network of that name, as the run's last stage makes it: a method may predict with one of its own."""
    kind = stages_of(config.method, config.pretrain)[-1]
    stage = kind(config.stages[kind.name], classes=classes, width=config.width, kernels=config.kernels)
    return stage.networks()[name]


def _resolved(folder: Path, config: Config) -> Resolved | str:
    kept = read_resolved(folder)
    if kept is not None:
        return kept
    try:
        return find_again(config)  # an older run has written nothing down
    except InputError as error:
        return str(error)
