"""ACDC in the form used by semi-supervised papers (SSL4MIS): h5 volumes and slices, with lists beside them.

    data/patientNNN_frameFF.h5            image, label: [z, y, x]
    data/slices/patientNNN_frameFF_slice_K.h5     image, label: [y, x]
    train.list  val.list  test.list  train_slices.list

Frames are renumbered.  A case whose volume is missing is assembled from its slices.
"""

from __future__ import annotations

import importlib
import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError, MissingPart
from mona_infer.io.read import label_ids
from mona_infer.system.memory_budget import memory_budget
from mona_infer.system.optional_parts import install_command, requirements
from mona_infer.volume import Volume
from mona_train.data.adapters.reading import files_below, once
from mona_train.data.case import Case, Part

NAME = re.compile(r"((patient\d{3})_frame\d+)(?:_slice_(\d+))?\.h5")
# The files have no geometry.  The signs are those of the challenge's own headers, so that both show the same picture.
NOMINAL = np.diag([-1.5, -1.5, 10.0, 1.0])
NOTE = "h5 files have no spacing: a nominal 1.5 x 1.5 x 10 mm is assumed"
PARTS: tuple[Part, ...] = ("train", "val", "test")


def is_part(path: Path) -> bool:
    return NAME.fullmatch(path.name) is not None


def cases(folder: Path, files: list[Path]) -> list[Case]:
    volumes: dict[str, Path] = {}
    slices: dict[str, dict[int, Path]] = {}
    for path in files:
        match = NAME.fullmatch(path.name)
        assert match
        if match[3] is None:
            once(volumes, match[1], path)
        else:
            once(slices.setdefault(match[1], {}), int(match[3]), path)
    parts = _parts(folder)
    return [
        Case(
            name=name,
            patient=name.split("_")[0],
            files=read_from,
            image=partial(_volume, name, "image", read_from),
            label=partial(_label, name, read_from),
            part=parts.get(name),
        )
        for name in sorted({*volumes, *slices})
        # sorted by number, not by name: slice 10 comes after 9
        for read_from in [(volumes[name],) if name in volumes else tuple(p for _, p in sorted(slices[name].items()))]
    ]


def _parts(folder: Path) -> dict[str, Part]:
    lists = {path.name: path for path in files_below(folder) if path.suffix == ".list"}
    found: dict[str, Part] = {}
    for part in PARTS:
        if path := lists.get(f"{part}.list"):
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= {line.strip().removesuffix(".h5"): part for line in text.splitlines() if line.strip()}
    return found


def _label(name: str, files: tuple[Path, ...]) -> Volume:
    volume = _volume(name, "label", files)
    return volume.with_voxels(label_ids(volume))


def _volume(name: str, key: str, files: tuple[Path, ...]) -> Volume:
    sliced = "_slice_" in files[0].name
    if sliced:
        _refuse_gaps(name, files)
    arrays = [_array(path, key) for path in files]
    shapes = sorted({a.shape for a in arrays})
    if len(shapes) > 1 or len(shapes[0]) != (2 if sliced else 3):
        raise InputError(f"{files[0]}: expected {key} as {'[y, x]' if sliced else '[z, y, x]'}, found shapes {shapes}")
    stack = np.stack(arrays) if sliced else arrays[0]  # z y x
    source = f"{files[0].parent / name}_slice_*.h5" if sliced else str(files[0])
    return Volume(stack.transpose(2, 1, 0), NOMINAL, source=source, modality="MR", notes=(NOTE,))


def _refuse_gaps(name: str, files: tuple[Path, ...]) -> None:
    """Slices are numbered from 1, or from 0 if SSL4MIS' own script wrote them."""
    there = {int(path.stem.rsplit("_", 1)[1]) for path in files}
    missing = sorted(set(range(min(1, *there), max(there) + 1)) - there)
    if missing:
        raise InputError(f"{files[0].parent}: slice {missing[0]} of {name} is missing (found {len(there)} slices)")


def _array(path: Path, key: str) -> NDArray[Any]:
    try:
        h5py: Any = importlib.import_module("h5py")
    except ModuleNotFoundError as error:
        raise MissingPart(f"{path} needs h5py: {install_command(requirements('train')['h5py'])}") from error
    try:
        with h5py.File(path, "r") as file:
            link = file.get(key, getlink=True)
            if link is None or isinstance(link, h5py.ExternalLink) or not isinstance(file[key], h5py.Dataset):
                raise InputError(f"{path} does not contain the dataset {key!r}, found {sorted(file)}")
            data = file[key]
            if data.is_virtual or data.external or data.dtype.kind not in "iufb":
                raise InputError(f"{path}: {key!r} is not a plain array of numbers")
            if math.prod(data.shape) * data.dtype.itemsize > memory_budget():
                raise InputError(f"{path}: {key!r} of shape {data.shape} does not fit in memory")
            return np.asarray(data[()])
    except (OSError, KeyError, RuntimeError) as error:  # what h5py raises for a damaged file
        raise InputError(f"{path} is damaged or not HDF5 ({error})") from error
