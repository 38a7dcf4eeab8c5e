"""From a raw download to the cache: in parallel, resumable when killed; a partial cache never counts as finished.

Each case becomes one shard, named by the hash of its inputs; shards of an interrupted run are reused.  The cache is
assembled beside its final place and renamed as a whole, as the last step.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.geometry.stack import SliceStack
from mona_infer.io.atomic import atomic_path, sync_folder, write_text, writing
from mona_infer.io.read import label_ids
from mona_infer.system.progress import progress
from mona_infer.task import Task, centred
from mona_infer.volume import Volume
from mona_kernels import native
from mona_train.data.cache import MANIFEST, Cache, CachedCase, manifest, read_manifest
from mona_train.data.case import Adapter, Case
from mona_train.data.check import content_hash
from mona_train.data.scale import at_one_scale
from mona_train.data.unused_files import warnings

if TYPE_CHECKING:
    from mona_infer.cohort.spread import Map

STEPS = 65535  # of intensity, in a uint16
AT_ONCE = 16  # slices
BLACK = 0.05  # below this a pixel is air


def prepare(
    adapter: Adapter,
    source: Path,
    folder: Path,
    size: tuple[int, int] | None = None,
    *,
    pixels: int = 0,
    say: IO[str] | None = None,
    spread: Map | None = None,
) -> Cache:
    """The cache of a data set in `folder`, made or completed if necessary.

    Slices are squeezed to `size`; or, if `pixels` is given, they keep their shape, and so many is the long side of a
    typical one.  What happens, and why, is written to `say` (standard output by default); files that are not used are
    reported on standard error.  `spread` is a map over the workers of a cluster; by default cases share these cores.
    """
    task = adapter.task(source)
    task = replace(task, size=size) if size else task
    asked = {"task": json.loads(task.to_json()), "pixels": pixels}
    cases = adapter.cases(source)
    if not cases:
        raise InputError(f"{source} contains no case of {adapter.title}; expected {adapter.layout}")
    for warning in warnings(adapter, source, cases):
        say_once(f"warning: {warning}", sys.stderr)
    if folder.exists() and not (folder / MANIFEST).is_file():  # it would be replaced as a whole
        raise InputError(f"{folder} exists and is not a prepared data set; choose another folder with --out")
    with _only_one(folder, say):
        before = read_manifest(folder)
        sources = _hash_sources(cases, source, (before or {}).get("sources", {}))
        shards = folder.with_name(folder.name + ".shards")
        changed = _changed(before, adapter, asked, cases, sources) if before else ""
        if before and not changed:
            say_once(f"using {folder}, which is already prepared", say)
        else:
            why = f" again: {changed}" if changed else _others(folder)
            say_once(f"preparing {folder}{why}", say)
            geometry = f"slices are squeezed to {task.size[0]}x{task.size[1]}"
            if pixels:
                task, geometry = at_one_scale(adapter, task, cases, pixels)
            shards.mkdir(parents=True, exist_ok=True)
            # each with the hashes of its own files: a worker need not hear of those of all
            todo = [(case, {name: sources[name] for name in _names(case, source)}) for case in cases]
            make = partial(_shard_of, task=task, source=source, shards=shards)
            if spread is not None:
                files = list(spread(make, todo))
            else:
                with ThreadPoolExecutor(native.cores()) as pool:
                    files = list(progress(pool.map(make, todo), len(cases), f"preparing {adapter.name}"))
            facts = {"dataset": adapter.name, "asked": asked, "geometry": geometry}
            _assemble(folder, facts, task, files, sources)
        for left in (shards, _old(folder)):  # also those of a run killed just before this line
            shutil.rmtree(left, ignore_errors=True)
    cache = Cache.open(folder)
    for warning in _vanished(cache) if changed or not before else ():
        say_once(f"warning: {warning}", sys.stderr)
    return cache


def _vanished(cache: Cache) -> Iterator[str]:
    """Classes that a volume contains as scanned but not at the slice size: they are too small."""
    lost: dict[str, list[str]] = {}
    for case in cache.cases:
        if case.first_label is not None:
            kept = np.unique(cache.labels[case.first_label : case.first_label + case.slices])
            for n, c in enumerate(cache.task.classes):
                if case.voxels[n] and n not in kept:
                    lost.setdefault(c.name, []).append(case.name)
    task = cache.task
    size = f"of {task.size[0]}x{task.size[1]}" if task.squeezed else "at this scale"
    for name, cases in lost.items():
        few = ", ".join(cases[:5]) + (", ..." if len(cases) > 5 else "")
        yield f"{name} is too small for slices {size} and vanishes in {len(cases)} volumes: {few}"


def say_once(text: str, where: IO[str] | None = None) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":  # only once when several processes train
        print(text, file=where, flush=True)


def _others(folder: Path) -> str:
    """Caches of the same data at another slice size; the user may have expected one of them to be used."""
    kind = re.compile(r"(.+)-\d+(?:x\d+)?")
    name = kind.fullmatch(folder.name)
    beside = sorted(path.parent for path in folder.parent.glob(f"*/{MANIFEST}"))
    others = [str(o) for o in beside if name and (m := kind.fullmatch(o.name)) and m[1] == name[1]]
    return f": {', '.join(others)} has slices of another size" if others else ""


def _changed(
    before: dict[str, Any], adapter: Adapter, asked: dict[str, Any], cases: list[Case], sources: dict[str, Any]
) -> str:
    """What has changed since the existing cache was made; empty if it can be used."""
    if before["dataset"] != adapter.name:
        return f"it was made from {before['dataset']}, not from {adapter.name}"
    if before["asked"] != asked:
        return "the classes, intensities or slice size have changed"
    hashes, old = ({name: entry["sha256"] for name, entry in found.items()} for found in (sources, before["sources"]))
    if other := sorted(name for name in {*hashes, *old} if hashes.get(name) != old.get(name)):
        kind = "new" if other[0] not in old else "gone" if other[0] not in hashes else "changed"
        return f"{other[0]} is {kind}" + (f", and {len(other) - 1} more files" if len(other) > 1 else "")
    known = [(c["name"], c["patient"], c["part"]) for c in before["cases"]]
    return (
        ""
        if known == [(c.name, c.patient, c.part) for c in cases]
        else "the cases have different names, patients or parts"
    )


def _hash_sources(cases: list[Case], source: Path, known: dict[str, Any]) -> dict[str, Any]:
    """SHA-256 of every source file; a file whose size and time are unchanged is not read again."""
    files = sorted({file for case in cases for file in case.files})

    def look(file: Path) -> tuple[str, dict[str, Any]]:
        name = _relative(file, source)
        try:
            found = file.stat()
            entry = known.get(name)
            if entry and (entry["size"], entry["mtime_ns"]) == (found.st_size, found.st_mtime_ns):
                return name, entry
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
        return name, {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "sha256": digest}

    with ThreadPoolExecutor(native.cores()) as pool:
        return dict(progress(pool.map(look, files), len(files), "hashing"))


def _relative(file: Path, source: Path) -> str:
    return file.relative_to(source).as_posix() if file.is_relative_to(source) else str(file)


def _names(case: Case, source: Path) -> list[str]:
    return [_relative(file, source) for file in case.files]


def _shard_of(case_and_sources: tuple[Case, dict[str, Any]], task: Task, source: Path, shards: Path) -> Path:
    case, sources = case_and_sources
    return _shard(case, task, source, sources, shards)


def _shard(case: Case, task: Task, source: Path, sources: dict[str, Any], shards: Path) -> Path:
    """One case as slices of the network's size in one file; made only if it does not exist."""
    hashes = [sources[name]["sha256"] for name in _names(case, source)]
    key = hashlib.sha256(json.dumps([case.name, case.patient, task.to_json(), hashes]).encode()).hexdigest()
    path = shards / f"{key}.npz"
    if path.exists():
        return path
    image = case.image()
    stack = SliceStack(image, task)
    frame = stack.frame
    starts = range(0, len(stack), AT_ONCE)
    pixels = np.concatenate([_to_steps(stack.read_whole(k, min(k + AT_ONCE, len(stack)))) for k in starts])
    labels: NDArray[Any] = np.zeros((0, *frame), np.uint8)
    voxels: tuple[int, ...] = ()
    if case.label is not None:
        labels, voxels = _labels(case, image, stack, task, frame)
    shape = stack.slicing.view(image.voxels).shape
    entry = CachedCase(
        name=case.name,
        patient=case.patient,
        part=case.part,
        first=0,
        slices=len(pixels),
        first_label=0 if case.label is not None else None,
        reversed=stack.slicing.flips[0],
        shape=(shape[0], shape[1], shape[2]),
        spacing=stack.slicing.reorder(image.spacing),
        low=stack.low,
        high=stack.high,
        voxels=voxels,
        content=tuple(round(float(c), 4) for c in (pixels > BLACK * STEPS).mean(axis=(1, 2))),
        image_hash=content_hash(image),
        frame=None if task.squeezed else frame,
    )
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, images=pixels, labels=labels, entry=np.array(json.dumps(asdict(entry))))
    return path


def _to_steps(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return np.asarray(np.rint(values * np.float32(STEPS)), np.uint16)


def _labels(
    case: Case, image: Volume, stack: SliceStack, task: Task, frame: tuple[int, int]
) -> tuple[NDArray[np.uint8], tuple[int, ...]]:
    """Class indices at the network's scale, and the number of voxels of each class in the scan."""
    assert case.label is not None
    label = on_grid_of(case.label(), image)
    ids = label_ids(label)
    index = np.full(int(ids.max()) + 1, 255, np.uint8)
    for n, c in enumerate(task.classes):
        index[c.id : c.id + 1] = n
    classes = index[ids]
    if classes.max() >= len(task.classes):
        strange = sorted({int(i) for i in np.unique(ids)} - {c.id for c in task.classes})
        raise InputError(f"{label.source} contains label id {strange[0]}, which is not a class of {task.name}")
    view = np.ascontiguousarray(stack.slicing.view(classes))
    # squeezed: as published; else as soft maps, which keep a class's area
    count = len(task.classes)
    resized = native.resize(view, task.size, order=0) if task.squeezed else native.soft_labels(view, frame, count)
    return resized, tuple(int(n) for n in np.bincount(view.ravel(), minlength=count))


def _assemble(folder: Path, facts: dict[str, Any], task: Task, files: list[Path], sources: dict[str, Any]) -> None:
    entries, rows, label_rows = [], 0, 0
    for file in files:
        with np.load(file, allow_pickle=False) as shard:
            entry = json.loads(str(shard["entry"]))
        entries.append(entry | {"first": rows, "first_label": None if entry["first_label"] is None else label_rows})
        rows += entry["slices"]
        label_rows += 0 if entry["first_label"] is None else entry["slices"]
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    height, width = (max(sides) for sides in zip(*(entry["frame"] or task.size for entry in entries), strict=True))
    shapes = {"images": ((rows, height, width), np.uint16), "labels": ((label_rows, height, width), np.uint8)}
    for name, (shape, dtype) in shapes.items():
        with writing(new / f"{name}.npy"), (new / f"{name}.npy").open("wb") as out:
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)
            for file in files:
                with np.load(file, allow_pickle=False) as shard:
                    out.write(_in_the_middle(shard[name], (height, width)).tobytes())
            out.flush()
            os.fsync(out.fileno())
    ordered = [CachedCase(**entry) for entry in entries]
    write_text(new / MANIFEST, manifest(facts, task, ordered, sources))
    if folder.exists():  # an older cache, from other files or for another Task: moved whole, never half removed
        shutil.rmtree(_old(folder), ignore_errors=True)
        folder.rename(_old(folder))
    new.rename(folder)
    sync_folder(folder.parent)


def _old(folder: Path) -> Path:
    return folder.with_name(folder.name + ".old")


def _in_the_middle(slices: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    if slices.shape[1:] == size:
        return slices
    out = np.zeros((len(slices), *size), slices.dtype)
    out[:, *centred(size, (slices.shape[1], slices.shape[2]))] = slices
    return out


@contextlib.contextmanager
def _only_one(folder: Path, say: IO[str] | None) -> Iterator[None]:
    """Only one process prepares a cache at a time; the lock ends with its process."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: no lock, but every step is still atomic
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(folder.name + ".lock")
    try:
        lock = path.open("w")
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES) or not folder.exists():
            raise
        yield  # nobody can change what is there: it can be used, if it is what is wanted
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_once(f"waiting for another process that prepares {folder}", say)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
