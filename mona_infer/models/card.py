"""A model's card: Markdown for people, with a head in TOML between two lines of +++ for `mona`.

The head says which model file it is of, under which licence, how good it was, and what kind of scan it is for.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError

FENCE = "+++\n"
Range = tuple[float, float]


@dataclass(frozen=True)
class ScanKind:
    """What kind of scan a model is for.

    Ranges of: slices (how many), and in mm in-plane spacing, slice spacing, field of view, depth (of the whole stack).
    """

    name: str  # "a short-axis stack of the heart (MR)"
    possible: dict[str, Range] = field(default_factory=dict)  # a scan outside of these is refused
    usual: dict[str, Range] = field(default_factory=dict)  # outside: a warning.  They replace those of `Task.seen`
    oblique: bool = False  # its slices are never axial, coronal or sagittal


@dataclass(frozen=True)
class Card:
    name: str
    model: Path
    sha256: str  # the seal of its model
    title: str  # what it segments
    data: str  # what it learned from
    licence: str  # an SPDX identifier
    terms: str  # the licence and the intended use in a few words
    dsc: float  # mean over classes on the validation patients
    classes: dict[str, float]  # and of each class
    measured_on: str  # "10 validation patients"
    scans: ScanKind
    text: str  # the Markdown below the head

    def describe(self) -> str:
        """One line: the name, how good it is, what may be done with it."""
        return f"{self.name} (bundled with mona): mean DSC {self.dsc:.3f} on {self.measured_on}; {self.terms}"

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in ("name", "title", "data", "licence", "terms", "dsc", "classes")}
        return facts | {"measured_on": self.measured_on, "sha256": self.sha256, "path": str(self.model)}


def read_card(path: Path) -> Card:
    try:
        before, head, text = path.read_text(encoding="utf-8").split(FENCE, 2)
        if before:
            raise ValueError("it does not begin with +++")
        found = tomllib.loads(head)
        scans = found["scans"]
        kind = ScanKind(
            str(scans["name"]), _ranges(scans, "possible"), _ranges(scans, "usual"), bool(scans.get("oblique", False))
        )
        strings = {key: str(found[key]) for key in ("sha256", "title", "data", "licence", "terms", "measured_on")}
        classes = {str(name): float(dsc) for name, dsc in found["classes"].items()}
        return Card(
            name=path.stem,
            model=path.with_suffix(".onnx"),
            **strings,
            dsc=float(found["dsc"]),
            classes=classes,
            scans=kind,
            text=text.lstrip("\n"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a model card ({error})") from error


def _ranges(scans: dict[str, Any], key: str) -> dict[str, Range]:
    return {str(name): (float(low), float(high)) for name, (low, high) in scans.get(key, {}).items()}
