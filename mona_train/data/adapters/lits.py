"""LiTS: CT of the abdomen with liver and tumours.

volume-N.nii and segmentation-N.nii (or .nii.gz), flat or in any folders ("Training Batch 1", "media/nas/...").
Files are numbered from 0 and the published lists from 1: case k is volume-(k-1), so volume-0 is case0001 (method 1.2).
The challenge's test-volume-N, which have no labels, become test0001 and so on.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.task import GREEN, RED, Intensity, LabelClass, Task
from mona_train.data.adapters.reading import files_below, once, read_image, read_label, scans_below
from mona_train.data.case import Adapter, Case

NAME = re.compile(r"(test-)?(volume|segmentation)-(\d+)\.nii(\.gz)?")

TASK = Task(
    name="lits",
    classes=(
        LabelClass(0, "background", (0, 0, 0)),
        LabelClass(1, "liver", GREEN),
        LabelClass(2, "tumour", RED),
    ),
    slices="inferior-superior",
    intensity=Intensity("window", -200, 250),
    image_order=1,
    modality="CT",
)


def recognises(folder: Path) -> bool:
    return any(NAME.fullmatch(path.name) for path in files_below(folder))


def cases(folder: Path) -> list[Case]:
    images: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    for path in files_below(folder):
        if match := NAME.fullmatch(path.name):
            name = f"{'test' if match[1] else 'case'}{int(match[3]) + 1:04d}"
            once(images if match[2] == "volume" else labels, name, path)
    if not images and not labels:
        raise InputError(f"{folder} contains no volume-N.nii; expected {ADAPTER.layout}")
    return [_case(name, images.get(name), labels.get(name)) for name in sorted({*images, *labels})]


def _case(name: str, image: Path | None, label: Path | None) -> Case:
    files = tuple(f for f in (image, label) if f)
    if image is None:
        image = files[0].with_name(files[0].name.replace("segmentation", "volume"))
    return Case(
        name=name,
        patient=name,
        files=files,
        image=partial(read_image, image, "CT", label),
        label=partial(read_label, label, image) if label else None,
    )


ADAPTER = Adapter(
    name="lits",
    title="LiTS: abdominal CT, 131 scans, liver and tumours",
    recognises=recognises,
    task=lambda folder: TASK,
    cases=cases,
    source="https://competitions.codalab.org/competitions/17094",
    licence="CC BY-NC-ND 4.0 (check the terms on that page); cite Bilic et al., Medical Image Analysis 2023",
    layout="lits/{volume-0.nii, segmentation-0.nii, volume-1.nii, ...}, flat or in folders, .nii or .nii.gz",
    files=scans_below,
    label_name=lambda case: case.files[0].name.replace("volume", "segmentation"),
)
