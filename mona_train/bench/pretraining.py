"""Pre-training that rows share: rows that differ only in their last stage are the same run until that stage begins.

It is trained once, as a run that stops where the last stage begins.  Each row then starts as a copy of it and is
resumed: bit for bit the run that it would have been alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from mona_infer.io.atomic import atomic_path
from mona_train.config.schema import Config
from mona_train.engine.trainer import spans
from mona_train.run import checkpoint
from mona_train.run.folder import clear

LAST = Path("checkpoints") / "last.safetensors"
COPIED = ("resolved.json", "first_look.safetensors", "metrics.jsonl", "machine.json")


def end_of(config: Config) -> int:
    """The steps before the last stage."""
    return spans(config)[-1].first


def is_done(run: Path, config: Config) -> bool:
    return (run / LAST).is_file() and int(checkpoint.load(run / LAST)[1]["step"]) == end_of(config)


def start_from(pretraining: Path, row: Path) -> None:
    """The checkpoint comes last: with it the row has begun, and is not touched again."""
    if (row / LAST).is_file():
        return
    clear(row)
    for name in COPIED:
        if (pretraining / name).is_file():
            _copy(pretraining / name, row / name)
    for path in (*pretraining.glob("pictures/*.png"), *pretraining.glob("events.out.*")):
        _copy(path, row / path.relative_to(pretraining))
    _copy(pretraining / LAST, row / LAST)


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
