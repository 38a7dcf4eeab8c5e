"""Pictures of what the methods answer: a slice, labels alone, the best rival, MONA, the reference, for three cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mona_infer.errors import InputError
from mona_train.bench.comparisons import comparisons, subject
from mona_train.bench.entries import Entry
from mona_train.bench.sections import Section

Tile = tuple[str, Any]  # caption, picture


def shown(section: Section, ratio: float | None) -> list[Entry]:
    """MONA last, beside the reference."""
    ours = subject(section.at(ratio))
    rivals = [c.theirs for c in comparisons(section, ratio)[0]]
    return [] if ours is None else [*sorted(rivals, key=lambda e: e.dsc), ours]


def three_cases(entry: Entry) -> list[str]:
    """Its worst case, the one in the middle and its best."""
    order = sorted(entry.case_dsc, key=lambda case: entry.case_dsc[case])
    return list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]])) if order else []


def draw_panels(section: Section, ratio: float | None, runs: Path, path: Path) -> bool:
    """False where the runs are not in this folder; their networks segment the three cases again."""
    entries = [e for e in shown(section, ratio) if e.first.run and (runs / e.first.run / "results.json").is_file()]
    if len(entries) < 2:
        return False
    names = three_cases(entries[-1])
    columns = [_tiles(runs / e.first.run, names) for e in entries]
    if not names or not all(columns):
        return False
    from mona_infer.viewing.pictures import montage

    rows, task = [], columns[0][0][1]
    for n, name in enumerate(names):
        image, _, reference = columns[0][n][0]
        answers = [
            (f"{e.label} {e.first.case_dsc()[name]:.3f}", column[n][0][1][1])
            for e, column in zip(entries, columns, strict=True)
        ]
        rows.append(around_organ([image, *answers, reference]))
    montage(path, rows, legend=task)
    return True


def around_organ(tiles: list[Tile]) -> list[Tile]:
    """The part of a slice that any mask colours, and half of its size more on every side."""
    plain = tiles[0][1]
    coloured = np.any([(picture != plain).any(axis=2) for _, picture in tiles[1:]], axis=0)
    if not coloured.any():
        return tiles
    spans = []
    for axis in (0, 1):
        there = np.flatnonzero(coloured.any(axis=1 - axis))
        margin = (there[-1] - there[0] + 1) // 2
        spans.append(slice(max(0, there[0] - margin), there[-1] + 1 + margin))
    return [(caption, picture[spans[0], spans[1]]) for caption, picture in tiles]


def _tiles(run: Path, names: list[str]) -> list[Any]:
    """[(tiles of a case, Task)]: image, prediction, reference."""
    import torch

    from mona_train.engine.validate import validate
    from mona_train.run.load import load_run

    trained = load_run(run)
    cases = {case.name: case for case in trained.require_data().cases()}
    if missing := [name for name in names if name not in cases]:
        raise InputError(f"{run} was trained on other data: it has no case {missing[0]}")
    chosen = [cases[name] for name in names]
    scored = validate(trained.network, chosen, trained.task, torch.device("cpu"), trained.look)
    return [(s.tiles, trained.task) for s in scored]


def licence(dataset: str) -> str:
    """What a picture of this data set must say."""
    from mona_train.data.adapters import adapters

    adapter = adapters().get(dataset)
    return f"Slices of {adapter.title}: {adapter.licence}." if adapter else "Slices of the data; mind its licence."
