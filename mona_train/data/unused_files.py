"""Files of a data set that no case uses, with the scan that a misnamed label may belong to.

A label with the wrong name looks like a missing label: its scan would silently be treated as unlabelled.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mona_train.data.adapters.reading import ENDINGS, stem
from mona_train.data.case import Adapter, Case

SHOWN = 5  # warnings before a long list is shortened
LABEL = {"gt", "label", "labels", "lbl", "mask", "masks", "seg", "segm", "segmentation"}
IMAGE = {"image", "images", "img", "scan", "vol", "volume"}
ALIKE = 0.75  # difflib's ratio of two names without their numbers: "haert" is a mistyped "heart"
Key = tuple[str, ...]


@dataclass(frozen=True)
class Unused:
    """A file or folder that no case uses, and why."""

    path: Path
    message: str
    lost: bool = False  # a label, while a scan with a similar name is treated as unlabelled


def unused(adapter: Adapter, folder: Path, cases: list[Case]) -> list[Unused]:
    """All files in the data set's folders that no case reads, sorted by name."""
    used = {file for case in cases for file in case.files}
    rest = sorted(path for path in (adapter.files(folder) if adapter.files else ()) if path not in used)
    by_name = _finder(cases)
    return [_explained(adapter, path, by_name(path)) for path in rest]


def warnings(adapter: Adapter, folder: Path, cases: list[Case]) -> list[str]:
    """What `prepare` and `train` warn about before they start: the first few messages, and how many more there are."""
    found = sorted(unused(adapter, folder, cases), key=lambda entry: not entry.lost)
    lines = [*(entry.message for entry in found), *(adapter.remarks(folder) if adapter.remarks else ())]
    if len(lines) > SHOWN:
        return [*lines[:SHOWN], f"and {len(lines) - SHOWN} more; `mona data check` lists all of them"]
    return lines


def _explained(adapter: Adapter, path: Path, case: Case | None) -> Unused:
    if path.is_dir():
        return Unused(path, f"{path} is a folder and is not used; each scan must be a single .nii or .nii.gz file")
    readable = path.name.lower().endswith(ENDINGS)
    why = f"{path} is not used: mona cannot train on {path.suffix} files"
    if not _is_label(path):
        return Unused(path, f"{path} is not used: expected {adapter.layout}" if readable else why)
    if readable:
        why = f"{path} is not used: no scan has a matching name"
    if case is None:
        return Unused(path, why)
    if case.label is not None:
        return Unused(path, f"{path} is not used: {case.name} already has the label {case.files[-1]}")
    wanted = adapter.label_name(case) if adapter.label_name else ""
    rename = f"; if this is its label, {'rename' if readable else 'convert'} it to {wanted}" if wanted else ""
    return Unused(path, f"{why}, and {case.files[0]} is treated as unlabelled{rename}", lost=True)


def _is_label(path: Path) -> bool:
    return path.parent.name.lower().startswith("labels") or bool(LABEL & set(_tokens(path)))


def _tokens(path: Path) -> list[str]:
    """ "Heart-007_seg" is heart, 7, seg."""
    name = re.sub(r"\.\w+$", "", stem(path))
    return [word.lstrip("0") or "0" for word in re.findall(r"[a-z]+|\d+", name.lower())]


def _key(path: Path) -> Key:
    """Equal for names that are meant to be the same: ignores case, separators and leading zeros."""
    tokens = [token for token in _tokens(path) if token not in LABEL | IMAGE]
    channel = re.search(r"[_-]0000$", re.sub(r"\.\w+$", "", stem(path)))  # nnU-Net's; only images have it
    return tuple(tokens[:-1] if channel else tokens)


def _finder(cases: list[Case]) -> Callable[[Path], Case | None]:
    """Finds the case whose scan has the name of a file, or nearly the same name with the same numbers."""
    scans = {_key(case.files[0]): case for case in cases if case.files}
    by_numbers: dict[Key, list[Key]] = {}
    for key in scans:
        by_numbers.setdefault(_numbers(key), []).append(key)

    def find(path: Path) -> Case | None:
        key = _key(path)
        if key in scans:
            return scans[key]
        letters = {"".join(w for w in k if not w.isdigit()): k for k in by_numbers.get(_numbers(key), ())}
        own = "".join(w for w in key if not w.isdigit())
        close = difflib.get_close_matches(own, letters, n=1, cutoff=ALIKE) if _numbers(key) else []
        return scans[letters[close[0]]] if close else None

    return find


def _numbers(key: Key) -> Key:
    return tuple(word for word in key if word.isdigit())
