"""ACDC: short-axis cine MR of the heart, two labelled frames per patient, from the challenge or as h5 (`acdc_h5`).

The challenge has patientNNN/patientNNN_frameFF[_gt].nii.gz, where FF counts the frames of the cine and Info.cfg says
which are end-diastole and end-systole.  The published lists renumber them, and so do the case names here:
patientNNN_frame01 is ED, patientNNN_frame02 is ES.  Without an Info.cfg the frames are taken in order of number.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.task import CARDIAC, Task
from mona_train.data.adapters import acdc_h5
from mona_train.data.adapters.reading import files_below, once, read_image, read_label, scans_below, stem
from mona_train.data.case import Adapter, Case, Part

FRAME = re.compile(r"(patient\d{3})_frame(\d+)(_gt)?\.nii(\.gz)?")
Frames = dict[int, Path]


def recognises(folder: Path) -> bool:
    return any(_frame(path) or acdc_h5.is_part(path) for path in files_below(folder))


def task(folder: Path) -> Task:
    return replace(CARDIAC, name="acdc", orientation="stored")


def cases(folder: Path) -> list[Case]:
    images: dict[str, Frames] = {}
    labels: dict[str, Frames] = {}
    infos: dict[str, Path] = {}
    h5 = []
    for path in files_below(folder):
        if match := _frame(path):
            kind = labels if match[3] else images
            once(kind.setdefault(match[1], {}), int(match[2]), path)
        elif path.name.lower() == "info.cfg":
            infos[path.parent.name] = path
        elif acdc_h5.is_part(path):
            h5.append(path)
    patients = sorted({*images, *labels})
    if patients and h5:
        raise InputError(f"{folder} contains ACDC both as .nii and as .h5 files; give a folder with only one kind")
    if h5:
        return acdc_h5.cases(folder, h5)
    if not patients:
        raise InputError(f"{folder} contains no frame of an ACDC patient; expected {ADAPTER.layout}")
    return [
        case
        for patient in patients
        for case in _of_patient(folder, patient, images.get(patient, {}), labels.get(patient, {}), infos.get(patient))
    ]


def files(folder: Path) -> list[Path]:
    """Without the cine files (_4d), which have no labels and are not used."""
    return [path for path in scans_below(folder) if not stem(path).lower().endswith("_4d")]


def _frame(path: Path) -> re.Match[str] | None:
    """Frames are inside a folder named after the patient; labelsTr/patient001_frame01.nii.gz is in nnU-Net's layout."""
    match = FRAME.fullmatch(path.name)
    return match if match and match[1] in path.parts[:-1] else None


def _of_patient(folder: Path, patient: str, images: Frames, labels: Frames, info: Path | None) -> list[Case]:
    numbers = _named_frames(info) if info else None
    if numbers is None:
        numbers = sorted({*images, *labels})
        if len(numbers) > 2:
            where = next(iter((images or labels).values())).parent
            raise InputError(
                f"{where} has frames {numbers} but no Info.cfg that says which are ED and ES; add the Info.cfg"
            )
    out = []
    for order, number in enumerate(numbers, start=1):
        image, label = images.get(number), labels.get(number)
        some = image or label or info or next(iter({**images, **labels}.values()))
        part: Part | None = "test" if "testing" in some.relative_to(folder).parts else None  # patients 101 to 150
        out.append(
            Case(
                name=f"{patient}_frame{order:02d}",
                patient=patient,
                files=tuple(f for f in (image, label) if f),
                image=partial(read_image, image or some.parent / f"{patient}_frame{number:02d}.nii.gz", "MR", label),
                label=partial(read_label, label) if label else None,
                part=part,
            )
        )
    return out


def _named_frames(info: Path) -> list[int] | None:
    """The numbers of ED and ES, in this order."""
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{info} cannot be read: {error.strerror or error}") from error
    found = {key: int(number) for key, number in re.findall(r"^\s*(ED|ES)\s*:\s*(\d+)", text, re.MULTILINE)}
    return [found["ED"], found["ES"]] if len(found) == 2 else None


ADAPTER = Adapter(
    name="acdc",
    title="ACDC: cardiac MR, 100 patients, ED and ES",
    recognises=recognises,
    task=task,
    cases=cases,
    source="https://humanheart-project.creatis.insa-lyon.fr/database (or as h5 from https://github.com/HiLab-git/SSL4MIS)",
    licence="CC BY-NC-SA 4.0; cite Bernard et al., IEEE TMI 2018",
    layout="acdc/patient001/{Info.cfg, patient001_frame01.nii.gz, patient001_frame01_gt.nii.gz, ...}, also below "
    "training/ and testing/; or acdc/data/{patient001_frame01.h5, slices/patient001_frame01_slice_1.h5}",
    volumes=2,
    files=files,
    label_name=lambda case: f"{stem(case.files[0])}_gt.nii.gz",
    # The h5 copy has neither spacing nor orientation, and both copies should look the same to a network: the arrays are
    # the same, 15 of 80 patients are stored a quarter turn away.
    ruler="pixels",
    orientation="portrait",
)
