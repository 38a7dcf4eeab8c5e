"""Whether labelling what `mona label next` advises is better than labelling patients at random.

    python tools/check_advice.py runs/acdc-mona-1pc --add 2 --draws 5 --out advice

RUN is a finished run that learned from a few labelled patients of a data set in which every patient has a label.  Each
arm trains again with RUN's settings, geometry, first look and seed, and the labels of `--add` patients more: those
advised, or those of one draw.  An arm that is finished is not trained again, so two calls with other `--arms` on the
same folder share the work.  What is printed is DSC on the validation patients, of the best and of the last network.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table

from mona_train.data.adapters import adapter_named
from mona_train.data.cache import Cache
from mona_train.data.resolved import Resolved, read_resolved
from mona_train.data.split import Split
from mona_train.engine.allocator import keep_freed_memory
from mona_train.engine.first_look import load_first_look
from mona_train.engine.session import Data, Session
from mona_train.labelling.advice import advise
from mona_train.run.folder import read_config, write_config

ADVICE = "advice"


def labelled_too(split: Split, cache: Cache, patients: Sequence[str]) -> Split:
    """The split with all slices of these patients labelled."""
    rows = {row for case in cache.cases if case.patient in patients for row in case.rows}
    assert rows <= set(split.unlabelled), "they were not all without a label"
    return replace(
        split,
        labelled=tuple(sorted({*split.labelled, *rows})),
        unlabelled=tuple(sorted(set(split.unlabelled) - rows)),
        labelled_patients=tuple(sorted({*split.labelled_patients, *patients})),
        unlabelled_patients=tuple(sorted(set(split.unlabelled_patients) - set(patients))),
        origin=f"{split.origin}, and {', '.join(sorted(patients))}",
    )


def drawn(split: Split, count: int, seed: int) -> list[str]:
    """Patients without a label, at random."""
    return sorted(np.random.default_rng([seed, 7]).choice(sorted(split.unlabelled_patients), count, replace=False))


def chosen_by(arm: str, run: Path, resolved: Resolved, count: int) -> list[str]:
    if arm != ADVICE:
        return drawn(resolved.split, count, int(arm.rpartition(" ")[2]))
    found = advise(run, adapter_named(resolved.adapter), resolved.data, count)
    return [patient.patient for patient in found.patients]


def train(run: Path, resolved: Resolved, patients: Sequence[str], folder: Path) -> dict[str, Any]:
    config, cache = read_config(run), resolved.open_cache()
    resolved = replace(resolved, split=labelled_too(resolved.split, cache, patients))
    precision: Any = config.precision
    fabric = Fabric(devices=1, precision=precision)
    session = Session(config, folder, Data(config, resolved, cache, load_first_look(run)), fabric)
    write_config(config, folder)
    session.data.write(folder)
    session.resume()
    return session.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--add", type=int, default=2, help="patients to label")
    parser.add_argument("--draws", type=int, default=5, help="how many times to draw them at random")
    parser.add_argument("--out", type=Path, default=Path("advice"))
    parser.add_argument(
        "--arms", help="train only these, such as 0,2,4: 0 is the advice, 1 the first draw; default all"
    )
    given = parser.parse_args()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning_fabric")
    keep_freed_memory()
    resolved = read_resolved(given.run)
    if resolved is None:
        parser.error(f"{given.run} did not record what it learned from; train it again")
    arms = [ADVICE, *(f"draw {n}" for n in range(given.draws))]
    for arm in [arms[int(n)] for n in given.arms.split(",")] if given.arms else arms:
        folder = given.out / arm.replace(" ", "-")
        if not (folder / "results.json").exists():
            train(given.run, resolved, chosen_by(arm, given.run, resolved, given.add), folder)
    show(given.run, {arm: given.out / arm.replace(" ", "-") for arm in arms})


def show(run: Path, arms: dict[str, Path]) -> None:
    """The start, every finished arm, and the mean of the draws."""
    table = Table(title="DSC on the validation patients", title_justify="left")
    for name in ("labelled", "patients", "best", "last"):
        table.add_column(name)
    drawn_scores = []
    for name, folder in {"start": run, **arms}.items():
        if not (folder / "results.json").exists():
            continue
        found, resolved = json.loads((folder / "results.json").read_text()), read_resolved(folder)
        assert resolved is not None
        scores = [found["validation"][which]["dsc"] for which in ("best", "last")]
        table.add_row(name, " ".join(resolved.split.labelled_patients), *(f"{score:.4f}" for score in scores))
        if name not in ("start", ADVICE):
            drawn_scores.append(scores)
    for name, of in (("mean", statistics.mean), ("lowest", min), ("highest", max)):
        if drawn_scores:
            row = (f"{of(column):.4f}" for column in zip(*drawn_scores, strict=True))
            table.add_row(f"draws, {name}", "", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
