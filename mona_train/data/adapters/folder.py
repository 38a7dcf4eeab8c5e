"""Any folder with a dataset.json, in the layout of the Medical Segmentation Decathlon or nnU-Net; one channel per scan.

Decathlon: labels {"0": "background"}, "modality", a list "training" of {"image": "./imagesTr/x.nii.gz", "label": ...}.
nnU-Net:   labels {"background": 0}, "channel_names", imagesTr/CASE_0000.nii.gz beside labelsTr/CASE.nii.gz.

A scan in imagesTr (or imagesUn) without a file in labelsTr is unlabelled.  A scan in imagesTs is in part "test" if
labelsTs has its label, and is left out otherwise.  A case is named after its file.  Each case is a patient, except that
names which differ only in a frame or time at the end (_frame01, _ED, _tp1, _t0, _visit2, _ses-2) are one patient.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import slicing
from mona_infer.io.naming import patients_of
from mona_infer.task import BLUE, GREEN, RED, Intensity, LabelClass, Task
from mona_infer.volume import Volume
from mona_train.data.adapters.reading import ENDINGS, grid, once, read_image, read_label, stem
from mona_train.data.case import Adapter, Case

CHANNEL = re.compile(r"(.+)_(\d{4})")
MR = re.compile(r"\b(MRI?|T1\w*|T2\w*|FLAIR|DWI|ADC|PD|LGE|b?SSFP|cine\w*)\b", re.IGNORECASE)
CT = re.compile(r"\bCT\b", re.IGNORECASE)
PALETTE = (
    RED, GREEN, BLUE, (240, 170, 50), (70, 200, 220), (200, 90, 200), (150, 150, 250), (170, 210, 60), (250, 140, 160),
    (140, 100, 60), (0, 130, 130), (190, 190, 190),
)  # fmt: skip
OTHER_FORMATS = (  # common formats that this adapter does not read
    ".nrrd", ".nhdr", ".mha", ".mhd", ".hdr", ".img", ".mgz", ".dcm", ".zip", ".tif", ".tiff", ".png", ".npy", ".npz",
)  # fmt: skip
HEADERS = 16  # number of headers read to choose the slice size


def recognises(folder: Path) -> bool:
    return (folder / "dataset.json").is_file()


def task(folder: Path) -> Task:
    about = _about(folder)
    channel = _channel(folder, about)
    modality = "CT" if CT.search(channel) else "MR" if MR.search(channel) else channel or None
    named = str(about.get("name") or about.get("dataset_name") or folder.resolve().name)
    return Task(
        name=re.sub(r"[^\w.-]+", "-", named).strip("-.") or "folder",  # it becomes part of file names
        classes=_classes(folder, about),
        intensity=Intensity("percentile", 0.5, 99.5) if modality == "CT" else Intensity(),
        size=_size(folder, about),
        image_order=1,
        modality=modality,
    )


def cases(folder: Path) -> list[Case]:
    about = _about(folder)
    _classes(folder, about)
    _channel(folder, about)
    training, tests = _training(folder, about), _tests(folder, about)
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
    about = _about(folder)
    out = []
    for _, image, label in _listed(folder, about, "training"):
        if label and not label.is_file() and not (folder / "labelsTr" / label.name).is_file():
            out.append(f"{image} is treated as unlabelled: its label {label}, listed in dataset.json, does not exist")
    if not (folder / "labelsTr").is_dir() and not any(label for _, label in _training(folder, about).values()):
        others = sorted(path.name for path in folder.iterdir() if path.is_dir() and "label" in path.name.lower())
        instead = f", and {', '.join(others)} is not used" if others else ""
        out.append(f"{folder / 'labelsTr'} does not exist{instead}; labels are expected there")
    if left_out := [image for image, label in _tests(folder, about).values() if label is None]:
        out.append(f"{left_out[0].parent} has {len(left_out)} scan(s) without a label in labelsTs; they are not used")
    return out


def files(folder: Path) -> list[Path]:
    """Scans and labels of any format, and folders (of DICOM) in their place; for test scans see `remarks`."""
    places = (folder / name for name in ("imagesTr", "imagesUn", "labelsTr", "labelsTs"))
    found = (path for place in places if place.is_dir() for path in place.iterdir() if not path.name.startswith("."))
    return [path for path in found if path.is_dir() or path.name.lower().endswith((*ENDINGS, *OTHER_FORMATS))]


Scans = dict[str, tuple[Path, Path | None]]  # image and label of a case
Listed = list[tuple[str, Path, Path | None]]  # name, image and label


def _training(folder: Path, about: dict[str, Any]) -> Scans:
    found = _found(folder, about, "training", "labelsTr", ("imagesTr", "imagesUn"))
    if not found:
        raise InputError(f"{folder} has a dataset.json but no scans; expected {ADAPTER.layout}")
    return found


def _tests(folder: Path, about: dict[str, Any]) -> Scans:
    found = _found(folder, about, "test", "labelsTs", ("imagesTs",))
    return {name: (image, label) for name, (image, label) in found.items() if label or image.is_file()}


def _found(folder: Path, about: dict[str, Any], key: str, labels_in: str, images_in: tuple[str, ...]) -> Scans:
    """What dataset.json lists under `key`, and the other files in the folders."""
    images: dict[str, Path] = {}
    labels = {stem(path): path for path in _scans(folder / labels_in)}
    for name, image, label in _listed(folder, about, key):
        once(images, name, image)
        if label and label.is_file():
            labels[name] = label
    for path in (path for place in images_in for path in _scans(folder / place)):
        if path not in images.values():
            once(images, _case_name(path, about, labels), path)
    return {name: (image, labels.get(name)) for name, image in images.items()}


def _listed(folder: Path, about: dict[str, Any], key: str) -> Listed:
    """An item is {"image", "label"}, or just the path of an image."""
    items = about.get(key)
    out: Listed = []
    for item in items if isinstance(items, list) else []:
        entry = item if isinstance(item, dict) else {"image": item}
        image = _inside(folder, entry.get("image"))
        name, first = stem(image), image.with_name(f"{stem(image)}_0000{image.name[len(stem(image)) :]}")
        if not image.exists() and first.exists():  # nnU-Net's first version lists cases, not files
            image = first
        else:
            name = _case_name(image, about, {})
        out.append((name, image, _inside(folder, entry["label"]) if entry.get("label") else None))
    return out


def _inside(folder: Path, listed: Any) -> Path:
    if not isinstance(listed, str):
        raise InputError(f"{folder / 'dataset.json'}: expected the path of a scan, found {listed!r}")
    parts = PureWindowsPath(listed)  # knows both kinds of separator
    if parts.anchor or ".." in parts.parts:
        raise InputError(f"{folder / 'dataset.json'} lists {listed!r}, which is outside {folder}; use relative paths")
    return folder.joinpath(*parts.parts)


def _scans(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name.lower().endswith(ENDINGS) and not p.name.startswith("."))


def _case_name(image: Path, about: dict[str, Any], labels: dict[str, Path]) -> str:
    """The file's name, without nnU-Net's _0000; a _0001 is a second channel, which is refused.

    In the Decathlon's layout a name may end in four digits: they are a channel only if a label has the name without.
    """
    name, match = stem(image), CHANNEL.fullmatch(stem(image))
    nnunet = "channel_names" in about or "file_ending" in about
    if not (nnunet or (match and match[1] in labels and name not in labels)):
        return name
    if match is None:
        raise InputError(f"{image}: expected a name like CASE_0000{image.name[len(name) :]}, as in nnU-Net")
    if match[2] != "0000":
        raise InputError(f"{image} is another channel of {match[1]}; mona reads one channel per scan: keep only _0000")
    return match[1]


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
    images = [image for image, _ in _training(folder, about).values() if image.is_file()]
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


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error
    if not isinstance(about, dict) or not isinstance(about.get("labels"), dict):
        raise InputError(f"{path}: expected an object with labels, as in the Decathlon or nnU-Net")
    ending = about.get("file_ending", ".nii.gz")
    if ending not in ENDINGS:
        raise InputError(f"{path} has file_ending {ending!r}, which mona cannot train on; convert the scans to .nii.gz")
    return about


def _classes(folder: Path, about: dict[str, Any]) -> tuple[LabelClass, ...]:
    path = folder / "dataset.json"
    names: dict[int, str] = {}
    for key, value in about["labels"].items():
        if isinstance(value, list):
            raise InputError(f"{path}: {key!r} is a region of ids {value}; mona needs one id per class")
        flipped = isinstance(value, int) or (str(value).isdecimal() and not key.isdecimal())
        name, number = (key, value) if flipped else (value, key)
        if str(name).lower() == "ignore":
            raise InputError(
                f"{path} has an ignore label ({number}); mona cannot train on labels with unlabelled voxels"
            )
        if not str(number).isdecimal() or isinstance(value, bool) or int(number) in names:
            raise InputError(
                f"{path}: expected labels like {{'0': 'background'}} or {{'background': 0}}, found {key!r}"
            )
        names[int(number)] = str(name)
    if 0 not in names or len(names) < 2:
        raise InputError(
            f"{path}: expected a background with id 0 and at least one other class, found ids {sorted(names)}"
        )
    colours = [(0, 0, 0), *(PALETTE[n % len(PALETTE)] for n in range(len(names) - 1))]
    return tuple(LabelClass(i, names[i], colour) for i, colour in zip(sorted(names), colours, strict=True))


def _channel(folder: Path, about: dict[str, Any]) -> str:
    """The name of the only channel, or an empty string."""
    found = about.get("channel_names", about.get("modality"))
    channels = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found or ""]
    if len(channels) != 1:
        listed = ", ".join(map(str, channels))
        raise InputError(
            f"{folder / 'dataset.json'} has {len(channels)} channels ({listed}); mona reads one channel per scan"
        )
    return str(channels[0])


ADAPTER = Adapter(
    name="folder",
    title="A folder with a dataset.json, as in the Medical Segmentation Decathlon or nnU-Net",
    recognises=recognises,
    task=task,
    cases=cases,
    source="your own scans, or http://medicaldecathlon.com",
    licence="the dataset's own (the Decathlon's is CC BY-SA 4.0)",
    layout="FOLDER/{dataset.json, imagesTr/NAME.nii.gz, labelsTr/NAME.nii.gz}, where scans without a label have no "
    "file in labelsTr",
    remarks=remarks,
    files=files,
    label_name=lambda case: f"labels{'Ts' if case.part == 'test' else 'Tr'}/{case.name}.nii.gz",
)
