"""Any folder with a dataset.json, in the layout of the Medical Segmentation Decathlon or nnU-Net; one channel per scan.

Decathlon: labels {"0": "background"}, "modality", a list "training" of {"image": "./imagesTr/x.nii.gz", "label": ...}.
nnU-Net:   labels {"background": 0}, "channel_names", imagesTr/CASE_0000.nii.gz beside labelsTr/CASE.nii.gz.

A scan in imagesTr (or imagesUn) without a file in labelsTr is unlabelled.  A scan in imagesTs is in part "test" if
labelsTs has its label, and is left out otherwise.  A case is named after its file.  Each case is a patient, except that
names which differ only in a frame or time at the end (_frame01, _ED, _tp1, _t0, _visit2, _ses-2) are one patient.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import slicing
from mona_infer.io.dataset_folder import (
    LAYOUT,
    channel_of,
    classes_of,
    listed_scans,
    read_about,
    test_scans,
    training_scans,
)
from mona_infer.io.formats import WHOLE as ENDINGS
from mona_infer.io.naming import patients_of
from mona_infer.task import Intensity, Task
from mona_infer.volume import Volume
from mona_train.data.adapters.reading import grid, read_image, read_label
from mona_train.data.case import Adapter, Case

MR = re.compile(r"\b(MRI?|T1\w*|T2\w*|FLAIR|DWI|ADC|PD|LGE|b?SSFP|cine\w*)\b", re.IGNORECASE)
CT = re.compile(r"\bCT\b", re.IGNORECASE)
OTHER_FORMATS = (  # common formats that this adapter does not read
    ".nrrd", ".nhdr", ".mha", ".mhd", ".hdr", ".img", ".mgz", ".dcm", ".zip", ".tif", ".tiff", ".png", ".npy", ".npz",
)  # fmt: skip
HEADERS = 16  # number of headers read to choose the slice size


def recognises(folder: Path) -> bool:
    return (folder / "dataset.json").is_file()


def task(folder: Path) -> Task:
    about = read_about(folder)
    channel = channel_of(folder, about)
    modality = "CT" if CT.search(channel) else "MR" if MR.search(channel) else channel or None
    named = str(about.get("name") or about.get("dataset_name") or folder.resolve().name)
    return Task(
        name=re.sub(r"[^\w.-]+", "-", named).strip("-.") or "folder",  # it becomes part of file names
        classes=classes_of(folder, about),
        intensity=Intensity("percentile", 0.5, 99.5) if modality == "CT" else Intensity(),
        size=_size(folder, about),
        image_order=1,
        modality=modality,
    )


def cases(folder: Path) -> list[Case]:
    about = read_about(folder)
    classes_of(folder, about)
    channel_of(folder, about)
    training, tests = training_scans(folder, about), test_scans(folder, about)
    twice = sorted({*training} & {*tests})
    if twice:
        raise InputError(f"{folder}: {twice[0]} is the name of a training scan and of a test scan; rename one of them")
    patients = patients_of([*training, *tests])
    return [
        Case(
            name=name,
            patient=patients[name],
            files=tuple(f for f in (image, label) if f and f.is_file()),
            image=partial(_read, image),
            label=partial(read_label, label, image) if label else None,
            part="test" if name in tests else None,
        )
        for scans in (training, tests)
        for name, (image, label) in sorted(scans.items())
        if label or name in training
    ]


def remarks(folder: Path) -> list[str]:
    about = read_about(folder)
    out = []
    for _, image, label in listed_scans(folder, about, "training"):
        if label and not label.is_file() and not (folder / "labelsTr" / label.name).is_file():
            out.append(f"{image} is treated as unlabelled: its label {label}, listed in dataset.json, does not exist")
    if not (folder / "labelsTr").is_dir() and not any(label for _, label in training_scans(folder, about).values()):
        others = sorted(path.name for path in folder.iterdir() if path.is_dir() and "label" in path.name.lower())
        instead = f", and {', '.join(others)} is not used" if others else ""
        out.append(f"{folder / 'labelsTr'} does not exist{instead}; labels are expected there")
    if left_out := [image for image, label in test_scans(folder, about).values() if label is None]:
        out.append(f"{left_out[0].parent} has {len(left_out)} scan(s) without a label in labelsTs; they are not used")
    return out


def files(folder: Path) -> list[Path]:
    """Scans and labels of any format, and folders (of DICOM) in their place; for test scans see `remarks`."""
    places = (folder / name for name in ("imagesTr", "imagesUn", "labelsTr", "labelsTs"))
    found = (path for place in places if place.is_dir() for path in place.iterdir() if not path.name.startswith("."))
    return [path for path in found if path.is_dir() or path.name.lower().endswith((*ENDINGS, *OTHER_FORMATS))]


def _read(path: Path) -> Volume:
    if path.is_file():
        shape, _ = grid(path)
        _refuse_channels(path, shape)
    return read_image(path, None)


def _refuse_channels(path: Path, shape: tuple[int, ...]) -> None:
    if len(shape) > 3 and max(shape[3:]) > 1:
        raise InputError(f"{path} has {max(shape[3:])} channels or frames; mona reads one 3-D scan per file: split it")


def _size(folder: Path, about: dict[str, Any]) -> tuple[int, int]:
    """The median in-plane size, rounded up to a multiple of 32, within 64..256: about the scans' own resolution."""
    images = [image for image, _ in training_scans(folder, about).values() if image.is_file()]
    extents = []
    for path in images[:: max(1, len(images) // HEADERS)][:HEADERS]:
        try:
            shape, affine = grid(path)
        except InputError:  # reported when the case is read, so that `mona data check` can check the others
            continue
        _refuse_channels(path, shape)
        _, rows, columns = slicing(affine, "stack").axes
        extents.append(max(shape[rows], shape[columns]))
    median = sorted(extents)[len(extents) // 2] if extents else 256
    size = min(256, max(64, -(-median // 32) * 32))
    return size, size


ADAPTER = Adapter(
    name="folder",
    title="A folder with a dataset.json, as in the Medical Segmentation Decathlon or nnU-Net",
    recognises=recognises,
    task=task,
    cases=cases,
    source="your own scans, or http://medicaldecathlon.com",
    licence="the dataset's own (the Decathlon's is CC BY-SA 4.0)",
    layout=LAYOUT,
    remarks=remarks,
    files=files,
    label_name=lambda case: f"labels{'Ts' if case.part == 'test' else 'Tr'}/{case.name}.nii.gz",
)
