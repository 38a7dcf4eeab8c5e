"""`mona train`, `data prepare`, `segment` and `bench`, made small: work of seconds for faults to be injected into.

Each writes below a folder `out`, from inputs that lie elsewhere, and is repeated as a user would repeat it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from helpers.forked import Forked, parent, rows
from helpers.small_settings import MONA, QUICK, SMALL, Done, kept, setting
from mona_infer.io.atomic import TEMPORARY
from mona_train.bench.results import Results

NAMES = ("train", "prepare", "segment", "bench")
STEPS = 8  # of `mona train`: 4 of pre-training, 4 of fine-tuning
SETTINGS = {**SMALL, "pretrain_share": "0.5", "batch.labelled": "2", "batch.unlabelled": "6", **QUICK}
SETTINGS |= {"every.validate": "4", "every.save": "2", "every.log": "1"}
TRAIN = ["train", "--dataset", "hearts", "--preset", "paper", "--ratio", "0.4", "--steps", str(STEPS)]
TRAIN += setting(SETTINGS)
ROWS = ["--methods", "unet-l", "--steps", str(STEPS), "--threads", "1"]
SCANS = 12
PATIENCE = 900  # seconds; on two quiet cores, none takes ten
# What a row says of the clock, and of a clone that somebody may be working in.
TIMED = ("seconds", "processor_seconds", "peak_memory", "finished", "commit")
BESIDE = re.compile(r"\.(shards|new|old)$")  # of a cache that is being prepared


def write_inputs(place: Path) -> Path:
    """Hearts, their prepared cache, scans to segment, a model and a list of rows."""
    drawn = parent().start(place, [], call="helpers.four_commands:draw_inputs")
    said = drawn.communicate(timeout=PATIENCE)
    assert drawn.returncode == 0, said
    done = run(place, "data", "prepare", "hearts", "--size", "32x32")
    assert done.code == 0, done
    return place


def draw_inputs(place: Path) -> None:
    from helpers import models
    from helpers.bench_runs import write_list
    from helpers.small_runs import write_dataset

    write_dataset(place / "hearts")
    (place / "scans").mkdir()
    images = sorted((place / "hearts/imagesTr").iterdir())
    for n in range(SCANS):
        shutil.copy(images[n % len(images)], place / "scans" / f"scan{n:02d}.nii.gz")
    models.write(place / "model.onnx")
    write_list(place)


def words(name: str, out: Path) -> list[Any]:
    """Of the command; a run that has begun is resumed, everything else is typed once more."""
    if name == "train":
        begun = (out / "run" / "run.toml").exists()
        return ["train", "--resume", out / "run"] if begun else [*TRAIN, "--out", out / "run"]
    if name == "prepare":
        return ["data", "prepare", "hearts", "--size", "32x32", "--out", out / "cache"]
    if name == "segment":
        return ["segment", "scans", "--model", "model.onnx", "--out", out / "masks", "--threads", "1"]
    return ["bench", "small.toml", *ROWS, "--out", out / "bench"]


def start(place: Path, *given: Any, group: Path | None = None) -> Forked:
    """In a session of its own, so that all of its processes can be reached at once."""
    return parent().start(place, [*map(str, given)], group)


def run(place: Path, *given: Any) -> Done:
    process = start(place, *given)
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.wait(), out, err)


def run_alone(place: Path, *given: Any, **environment: str) -> Done:
    """As a user starts it: a Python of its own, with its own environment."""
    command = [str(MONA), *map(str, given)]
    more = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, cwd=place, env=more, capture_output=True, text=True, timeout=PATIENCE)
    return Done(done.returncode, done.stdout, done.stderr)


def result(name: str, out: Path) -> dict[str, Any]:
    """All that the command is for, but for what the clock says, and for locks: a power cut may bring them back."""
    if name == "train":
        return _without_locks(kept(out / "run"))
    if name in ("prepare", "segment"):
        folder = out / ("cache" if name == "prepare" else "masks")
        files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}
    lines = enumerate(Results(out / "bench/results.jsonl").lines)
    values = {f"results.jsonl, row {n}, {k}": v for n, line in lines for k, v in line.items() if k not in TIMED}
    trained = {name: content for name, content in kept(out / "bench").items() if name.startswith("rows/")}
    return values | _without_locks(trained)


def _without_locks(files: dict[str, bytes]) -> dict[str, Any]:
    return {name: content for name, content in files.items() if not name.endswith(".lock")}


def size_of(expected: dict[str, Any]) -> int:
    """Bytes of the files."""
    return sum(len(content) for content in expected.values() if isinstance(content, bytes))


def differing(name: str, out: Path, expected: dict[str, Any]) -> list[str]:
    """The files that are not as they should be; [] if the command lost nothing."""
    found = result(name, out)
    return sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))


def leftovers(out: Path) -> list[str]:
    """Temporary files, folders beside a cache, locks that nobody holds; a cache keeps its own lock's file."""
    found = (p for p in out.rglob("*") if TEMPORARY.fullmatch(p.name) or BESIDE.search(p.name) or _is_lock(p))
    return sorted(p.relative_to(out).as_posix() for p in found)


def _is_lock(path: Path) -> bool:
    return path.name.endswith(".lock") and path.name != "cache.lock"


def partial(name: str, out: Path, expected: dict[str, Any]) -> list[str]:
    """Files under their final names that differ from those of an undisturbed command; runs are still growing."""
    if name in ("train", "bench"):
        return []
    if name == "prepare":
        return differing(name, out, expected) if (out / "cache").exists() else []
    found = result(name, out) if (out / "masks").exists() else {}
    return [key for key, content in found.items() if content != expected.get(key)]


def one_sentence(done: Done) -> str:
    """What `mona` complained of, in one line; fails if there was more, or a traceback."""
    assert "Traceback" not in done.err, done.err
    told = [line for line in done.err.splitlines() if line.startswith("mona: ")]
    assert len(told) == 1, done.err
    return told[0]


def signal_all(process: Forked, number: signal.Signals) -> None:
    """The command, and the rows that it has started."""
    for pid in (process.pid, *rows()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_until(process: Forked, happened: Any, patience: float = PATIENCE) -> bool:
    """Whether it happened before the process ended."""
    end = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < end:
        if happened():
            return True
        time.sleep(0.005)
    return False
