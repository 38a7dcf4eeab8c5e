"""MM-WHS: whole-heart CT (and MR in `mmwhs_mr`), seven structures.

ct_train_1001_image.nii.gz and ct_train_1001_label.nii.gz, flat or in folders; ct_test_* have no labels.  Raw ids 205,
420, 500, 550, 600, 820, 850 become 1 to 7 in this order (method 1.3).  One MR label contains 421, a mistyped 420.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mona_infer.errors import InputError
from mona_infer.task import BLUE, GREEN, RED, Intensity, LabelClass, Task
from mona_infer.volume import Volume
from mona_train.data.adapters.reading import files_below, once, read_image, read_label, scans_below
from mona_train.data.case import Adapter, Case

NAME = re.compile(r"((ct|mr)_(?:train|test)_\d+)_(image|label)\.nii(\.gz)?")
RAW_IDS = (205, 420, 500, 550, 600, 820, 850)
MISTYPED = {421: 420}

TASK = Task(
    name="mmwhs",
    classes=(
        LabelClass(0, "background", (0, 0, 0)),
        LabelClass(1, "Myo", GREEN),
        LabelClass(2, "LA", (240, 170, 50)),
        LabelClass(3, "LV", RED),
        LabelClass(4, "RA", (70, 200, 220)),
        LabelClass(5, "RV", BLUE),
        LabelClass(6, "AAo", (200, 90, 200)),
        LabelClass(7, "PA", (150, 150, 250)),
    ),
    slices="inferior-superior",
    # Metal and air make a CT's own extremes useless; the paper's plain min-max is Intensity() (method 1.3).
    intensity=Intensity("percentile", 0.5, 99.5),
    image_order=1,
    modality="CT",
)


def recognises(kind: str, folder: Path) -> bool:
    return any((match := NAME.fullmatch(path.name)) and match[2] == kind for path in files_below(folder))


def cases(kind: str, folder: Path) -> list[Case]:
    images: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    for path in files_below(folder):
        if (match := NAME.fullmatch(path.name)) and match[2] == kind:
            once(images if match[3] == "image" else labels, match[1], path)
    if not images and not labels:
        raise InputError(f"{folder} contains no file named like {kind}_train_1001_image.nii.gz")
    return [_case(name, images.get(name), labels.get(name)) for name in sorted({*images, *labels})]


def files(kind: str, folder: Path) -> list[Path]:
    """Without the files of the other modality, which may be in the same folder."""
    return [path for path in scans_below(folder) if not (m := NAME.fullmatch(path.name)) or m[2] == kind]


def _case(name: str, image: Path | None, label: Path | None) -> Case:
    files = tuple(f for f in (image, label) if f)
    if image is None:
        image = files[0].with_name(files[0].name.replace("_label", "_image"))
    return Case(
        name=name,
        patient=name,
        files=files,
        image=partial(read_image, image, "CT" if name.startswith("ct") else "MR", label),
        label=partial(_label, label, image) if label else None,
    )


def _label(path: Path, image: Path) -> Volume:
    volume = read_label(path, image)
    table = np.full(1 << 16, 255, np.uint8)
    table[0] = 0
    table[list(RAW_IDS)] = range(1, len(RAW_IDS) + 1)
    for wrong, right in MISTYPED.items():
        table[wrong] = table[right]
    voxels = table[volume.voxels]
    if (unknown := voxels == 255).any():
        found = np.unique(volume.voxels[unknown])
        raise InputError(
            f"{path} contains label id {', '.join(map(str, found))}; MM-WHS has 0, {', '.join(map(str, RAW_IDS))}"
        )
    notes = tuple(f"label id {w} is read as {r}" for w, r in MISTYPED.items() if (volume.voxels == w).any())
    return replace(volume, voxels=voxels, notes=volume.notes + notes)


ADAPTER = Adapter(
    name="mmwhs",
    title="MM-WHS: whole-heart CT, 20 labelled scans, 7 structures",
    recognises=partial(recognises, "ct"),
    task=lambda folder: TASK,
    cases=partial(cases, "ct"),
    source="http://www.sdspeople.fudan.edu.cn/zhuangxiahai/0/mmwhs (after registration)",
    licence="for research only, no redistribution (see the terms there); cite Zhuang et al., Med. Image Analysis 2019",
    layout="mmwhs/{ct_train_1001_image.nii.gz, ct_train_1001_label.nii.gz, ...}, flat or in folders",
    files=partial(files, "ct"),
    label_name=lambda case: case.files[0].name.replace("_image", "_label"),
)
