"""Every method learns: two hundred steps on a few drawn hearts, the loss falls, and organs are found.

At 64 pixels without a window, 200 steps of 4 + 4 slices are too few for methods that count half of the labels (DSC 0.02
for FixMatch even without pseudo-labels, 0.33 after 400 steps); hence a small window and more slices in a step.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.every_method import every, names, stages
from helpers.train_commands import mona, setting
from helpers.wide_phantoms import few_phantoms

STEPS = 200
# One class everywhere in the window scores less, and so does background everywhere: 0.
CHANCE = 0.1
SETTINGS = {"pixels": "48", "window": "32x32", "width": "0.5", "precision": "32-true", "optimiser.lr": "0.003"}
SETTINGS |= {"every.validate": str(STEPS), "every.save": str(STEPS), "batch.labelled": "8", "batch.unlabelled": "8"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs share the cache: hearts take longer to draw than to learn from."""
    return tmp_path_factory.mktemp("phantom")


@pytest.mark.parametrize("name", every(names(), ("mona", "fixmatch")))
def test_it_learns(name: str, place: Path, record_property: Any) -> None:
    method, pretrain = stages(name)
    command = ["train", "--dataset", "phantom", "--preset", "quick", "--ratio", "0.375", "--steps", str(STEPS)]
    command += ["--method", method, "--pretrain", pretrain, "--out", f"runs/{name}", *setting(SETTINGS)]
    with few_phantoms(train=8, val=2, test=1):
        done = mona(place, *command)
    assert done.code == 0, done.err
    run = place / "runs" / name
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line for line in lines if "weights" in line]
    numbers = [value for line in losses for value in line.values() if isinstance(value, float)]
    assert losses and all(math.isfinite(number) for number in numbers)
    # "dice" is PLC's; what comes before it is another loss
    fitted = [line["dice"] for line in losses if "dice" in line] or [
        line["supervised"] for line in losses if "supervised" in line
    ]
    early, late = sum(fitted[:3]) / 3, sum(fitted[-3:]) / 3
    found = json.loads((run / "results.json").read_text())["validation"]["best"]["dsc"]
    record_property("count", f"{name}: DSC {found:.2f} on phantoms, loss {early:.2f}, later {late:.2f}")
    assert late < early, (early, late)
    assert found > CHANCE
