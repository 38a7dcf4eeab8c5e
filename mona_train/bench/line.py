"""The line of results.jsonl that a finished run makes."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mona_infer.errors import CheckFailed, InputError
from mona_train.bench.results import Line
from mona_train.bench.rows import changed, config_key, principles_of, row_key, views_of
from mona_train.config.schema import Config
from mona_train.data.resolved import Resolved, read_resolved
from mona_train.methods.registry import stages_of
from mona_train.run.folder import read_config
from mona_train.run.machine import read_machine
from mona_train.run.metrics import read

UNKNOWN = "unknown"  # the code of a run that did not record it
AGREE = 1e-3  # DSC: a run measured again may differ by this much from what it said at its end


def finished(run: Path) -> bool:
    return (run / "results.json").is_file()


def line_of(run: Path, table: str, *, code: str | None = None) -> Line:
    """code: for a run that recorded none."""
    config, results, machine = read_config(run), _results(run), read_machine(run)
    resolved = read_resolved(run)
    if resolved is None:
        raise InputError(
            f"{run} was trained by an older version and has no resolved.json; `mona train --resume {run}` writes it"
        )
    code = machine.get("code") or code or UNKNOWN
    validation = results.get("validation", {})
    scores = {"validation": validation, **({"test": results["test"]} if "test" in results else {})}
    line = {
        "row": row_key(config, resolved.content, code),
        "table": table,
        **_asked(config, resolved),
        "config": config_key(config),
        "content": resolved.content,
        "commit": machine.get("commit"),
        "code": code,
        "version": machine.get("version"),
        "torch": machine.get("torch"),
        "threads": machine.get("threads"),
        "hardware": machine.get("hardware"),
        "precision": config.precision,
        "seconds": machine.get("seconds") or _seconds_of_log(run),
        "processor_seconds": machine.get("processor_seconds"),
        "peak_memory": machine.get("peak_memory"),
        "finished": _time(run / "results.json"),
        "classes": [c.name for c in resolved.task.classes[1:]],
        "chosen": results["chosen"],
        "best": results.get("best"),
        "labelled_patients": len(resolved.split.labelled_patients),
        "scores": scores,
        "cases": results.get("cases") or measured_again(run, results),
        "curve": [[r["step"], r["dsc"]] for r in read(run / "metrics.jsonl") if "dsc" in r],
        "run": run.name,
    }
    return dict(_finite(line))


def _asked(config: Config, resolved: Resolved) -> dict[str, Any]:
    kinds = stages_of(config.method, config.pretrain)
    student, teacher = views_of(config)
    return {
        "dataset": resolved.dataset,
        "ratio": config.ratio,
        "method": config.method,
        "pretrain": kinds[0].name if len(kinds) > 1 else "none",
        "principles": principles_of(config),
        "student": student,
        "teacher": teacher,
        "preset": config.preset,
        "steps": config.steps,
        "seed": config.seed,
        "settings": changed(config),
    }


def measured_again(run: Path, results: dict[str, Any]) -> dict[str, Any]:
    """The cases of a run of an older version, which kept only means: its network on its own data once more."""
    import torch

    from mona_train.engine.validate import by_case, summary, validate
    from mona_train.run.load import load_run

    trained = load_run(run)
    resolved = trained.require_data()
    cases = {case.name: case for case in resolved.cases()}
    found: dict[str, Any] = {}
    parts = (
        ("validation", resolved.split.val, results.get("validation", {}).get(trained.chosen)),
        ("test", resolved.split.test, results.get("test")),
    )
    for part, names, said in parts:
        if said is None:
            continue
        measured = [cases[name] for name in names if cases[name].label]
        cpu = torch.device("cpu")
        scored = validate(trained.network, measured, trained.task, cpu, trained.look, paper=True)
        again = summary(scored, trained.task)["dsc"]
        if abs(again - said["dsc"]) > AGREE:
            raise CheckFailed(
                f"{run}: measured again, the {part} DSC is {again:.4f}, but the run said {said['dsc']:.4f}; "
                "code or data have changed since, so train it again"
            )
        found[part] = by_case(scored, trained.task)
    return found


def _results(run: Path) -> dict[str, Any]:
    path = run / "results.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["chosen"]
    except FileNotFoundError as error:
        raise InputError(f"{run} has not finished: it has no results.json; `mona train --resume {run}`") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error})") from error
    return found


def _time(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds_of_log(run: Path) -> float | None:
    """Of a run that did not record it: from each start to the last entry after it."""
    entry = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d)  (.*)")
    try:
        found = [m.groups() for m in map(entry.match, (run / "log.txt").read_text(encoding="utf-8").splitlines()) if m]
    except (OSError, ValueError):
        return None
    total, last = 0.0, None
    for stamp, text in found:
        now = datetime.fromisoformat(stamp)
        if last is not None and not re.match(r"step \d+ of \d+, seed", text):
            total += (now - last).total_seconds()
        last = now
    return total or None


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
