"""A data set's folder in the layout of the Medical Segmentation Decathlon or nnU-Net: its scans, labels and classes.

Decathlon: labels {"0": "background"}, "modality", a list "training" of {"image": "./imagesTr/x.nii.gz", "label": ...}.
nnU-Net:   labels {"background": 0}, "channel_names", imagesTr/CASE_0000.nii.gz beside labelsTr/CASE.nii.gz.

A scan in imagesTr (or imagesUn) without a file in labelsTr is unlabelled.  A scan in imagesTs is a test scan, and its
label is in labelsTs.  A case is named after its file.  `mona train` and `mona serve` both read it with this file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PureWindowsPath
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.formats import WHOLE as ENDINGS
from mona_infer.io.formats import stem
from mona_infer.task import BLUE, GREEN, RED, LabelClass

CHANNEL = re.compile(r"(.+)_(\d{4})")
PALETTE = (
    RED, GREEN, BLUE, (240, 170, 50), (70, 200, 220), (200, 90, 200), (150, 150, 250), (170, 210, 60), (250, 140, 160),
    (140, 100, 60), (0, 130, 130), (190, 190, 190),
)  # fmt: skip
LAYOUT = (
    "FOLDER/{dataset.json, imagesTr/NAME.nii.gz, labelsTr/NAME.nii.gz}, where scans without a label have no "
    "file in labelsTr"
)
Scans = dict[str, tuple[Path, Path | None]]  # image and label of a case
Listed = list[tuple[str, Path, Path | None]]  # name, image and label


def training_scans(folder: Path, about: dict[str, Any]) -> Scans:
    found = _found(folder, about, "training", "labelsTr", ("imagesTr", "imagesUn"))
    if not found:
        raise InputError(f"{folder} has a dataset.json but no scans; expected {LAYOUT}")
    return found


def test_scans(folder: Path, about: dict[str, Any]) -> Scans:
    found = _found(folder, about, "test", "labelsTs", ("imagesTs",))
    return {name: (image, label) for name, (image, label) in found.items() if label or image.is_file()}


def _found(folder: Path, about: dict[str, Any], key: str, labels_in: str, images_in: tuple[str, ...]) -> Scans:
    """What dataset.json lists under `key`, and the other files in the folders."""
    images: dict[str, Path] = {}
    labels = {stem(path): path for path in _scans(folder / labels_in)}
    for name, image, label in listed_scans(folder, about, key):
        once(images, name, image)
        if label and label.is_file():
            labels[name] = label
    for path in (path for place in images_in for path in _scans(folder / place)):
        if path not in images.values():
            once(images, _case_name(path, about, labels), path)
    return {name: (image, labels.get(name)) for name, image in images.items()}


def once(found: dict[Any, Path], key: Any, path: Path) -> None:
    """Add a file under its key; two files for the same key are an error."""
    if key in found:
        raise InputError(f"{found[key]} and {path} are files for the same scan; remove one of them")
    found[key] = path


def listed_scans(folder: Path, about: dict[str, Any], key: str) -> Listed:
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


def read_about(folder: Path) -> dict[str, Any]:
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


def classes_of(folder: Path, about: dict[str, Any]) -> tuple[LabelClass, ...]:
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


def channel_of(folder: Path, about: dict[str, Any]) -> str:
    """The name of the only channel, or an empty string."""
    found = about.get("channel_names", about.get("modality"))
    channels = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found or ""]
    if len(channels) != 1:
        listed = ", ".join(map(str, channels))
        raise InputError(
            f"{folder / 'dataset.json'} has {len(channels)} channels ({listed}); mona reads one channel per scan"
        )
    return str(channels[0])
