"""Methods learn: two hundred steps on a few drawn hearts, the loss falls, and organs are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.train_commands import mona, setting
from helpers.wide_phantoms import few_phantoms

STEPS = 200
# Drawn hearts are easily told from background; a network that says "background" everywhere scores 0.
CHANCE = 0.1
SETTINGS = {"pixels": "64", "window": "full", "width": "0.5", "precision": "32-true", "optimiser.lr": "0.003"}
SETTINGS |= {"every.validate": str(STEPS), "every.save": str(STEPS), "batch.labelled": "4", "batch.unlabelled": "4"}


@pytest.mark.parametrize("method", ["mona", "mean-teacher"])
def test_it_learns(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "--dataset", "phantom", "--preset", "quick", "--ratio", "0.375", "--method", method]
    with few_phantoms(train=8, val=2, test=1):
        done = mona(tmp_path, *command, "--steps", str(STEPS), "--out", "run", *setting(SETTINGS))
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "supervised" in line or "dice" in line]
    stage = [line for line in last if line["stage"] == last[-1]["stage"]]
    fitted = [line.get("supervised", line.get("dice")) for line in stage]
    early, late = sum(fitted[:3]) / 3, sum(fitted[-3:]) / 3
    results = json.loads(Path("run/results.json").read_text())
    assert late < early, (early, late)
    assert results["validation"]["best"]["dsc"] > CHANCE
