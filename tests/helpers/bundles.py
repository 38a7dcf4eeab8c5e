"""Stand-ins for the models that come with mona: the small model of `helpers.models`, and a card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from helpers import models
from mona_infer.models import bundled
from mona_infer.models.file import read_model
from mona_infer.task import Task

# As tools/bundle_model.py writes it for ACDC; the intervals of pictures of 40 x 36 voxels are smaller.
CARD = """+++
sha256 = "{sha256}"
title = "bands"
data = "stand-ins, 3 of 70 labelled"
licence = "CC-BY-NC-SA-4.0"
terms = "for research"
measured_on = "10 patients"
dsc = {dsc}

[classes]
RV = 0.8
LV = 0.9

[scans]
name = "a stack of bands"
oblique = true

[scans.possible]
"slices" = [1, 50]
"depth" = [0, 350]
"in-plane spacing" = [0.2, 5]
"field of view" = [40, 1000]

[scans.usual]
"slices" = [4, 20]
"in-plane spacing" = [1.37, 1.68]
"slice spacing" = [5, 10]
+++

# {name}

A whole card.
"""
TASK = replace(models.TASK, orientation="portrait")


def put(folder: Path, name: str, dsc: float, task: Task = TASK) -> Path:
    """A model and its card."""
    folder.mkdir(parents=True, exist_ok=True)
    path = models.write(folder / f"{name}.onnx", task)
    card = CARD.format(sha256=read_model(path).seal, dsc=dsc, name=name)
    path.with_suffix(".md").write_text(card, encoding="utf-8")
    return path


@contextmanager
def stand_ins(folder: Path) -> Iterator[Path]:
    """`few` and the better `all` are all that comes with mona."""
    put(folder, "few", 0.85)
    put(folder, "all", 0.9)
    with mock.patch.object(bundled, "FOLDER", folder):
        yield folder
