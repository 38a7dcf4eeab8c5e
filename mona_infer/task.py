"""`Task`: what a model segments, and how a scan is prepared for the network and its output turned into a mask.

It is saved as JSON in caches, checkpoints and exported models, so that `mona segment` prepares scans exactly as
training did.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mona_infer.errors import InputError
from mona_infer.geometry.slicing import WORLD_AXES

INTENSITY_RULES = ("minmax", "window", "percentile")


@dataclass(frozen=True)
class LabelClass:
    """One structure: its id in label files, its name and the colour it is drawn in."""

    id: int
    name: str
    colour: tuple[int, int, int]


@dataclass(frozen=True)
class Intensity:
    """How intensities are scaled to 0..1.

    minmax: by the volume's own minimum and maximum.  window: from `low` to `high` in the scan's units (HU for CT).
    percentile: from the volume's `low`-th to its `high`-th percentile.  Values outside are clipped.
    """

    rule: str = "minmax"
    low: float = 0.0
    high: float = 100.0

    def __post_init__(self) -> None:
        if self.rule not in INTENSITY_RULES:
            raise InputError(f"unknown intensity rule {self.rule!r}; choose {', '.join(INTENSITY_RULES)}")
        if not self.low < self.high:
            raise InputError(f"the intensity range must have low < high, found {self.low}..{self.high}")
        if self.rule == "percentile" and not 0 <= self.low < self.high <= 100:
            raise InputError(f"percentiles must be between 0 and 100, found {self.low}..{self.high}")


@dataclass(frozen=True)
class Task:
    """What a model segments: the network's output channel n is `classes[n]`, and the first class is the background."""

    name: str
    classes: tuple[LabelClass, ...]
    slices: str = "stack"  # along the axis with thick slices, or a world axis
    fallback: str = "inferior-superior"  # the world axis to slice along where no axis has thick slices
    intensity: Intensity = field(default_factory=Intensity)
    size: tuple[int, int] = (256, 256)  # rows and columns that a slice is resized to
    window: tuple[int, int] | None = None  # the central part that the network sees (see `centred`); None: all of it
    image_order: int = 0  # how slices are resized for the network: 0 nearest, 1 linear (method 1.1)
    mask_order: int = 0  # 0: argmax, then nearest (method 1.5.1); 1: resize the logits linearly, then argmax
    modality: str | None = None
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)  # ranges seen in training

    def __post_init__(self) -> None:
        ids = [c.id for c in self.classes]
        if len(ids) < 2 or ids[0] != 0 or len(set(ids)) != len(ids) or not all(0 <= i <= 65535 for i in ids):
            raise InputError(
                f"task {self.name}: class ids must be distinct and start with 0, the background; found {ids}"
            )
        if self.slices not in ("stack", *WORLD_AXES) or self.fallback not in WORLD_AXES:
            axes = f"{self.slices!r} or fallback axis {self.fallback!r}"
            raise InputError(f"task {self.name}: unknown slice axis {axes}; choose {', '.join(WORLD_AXES)}")
        if min(self.size) < 1 or max(self.size) > 16384:
            raise InputError(f"task {self.name}: the slice size must be between 1 and 16384, found {self.size}")
        centred(self.size, self.input_size)  # refuses a window that does not fit
        if not {self.image_order, self.mask_order} <= {0, 1}:
            raise InputError(f"task {self.name}: resize orders must be 0 (nearest) or 1 (linear)")

    @property
    def input_size(self) -> tuple[int, int]:
        """Rows and columns of the network's input and of the logits it returns."""
        return self.size if self.window is None else self.window

    def to_json(self) -> str:
        # Without a window, write what mona wrote before windows existed: `mona data prepare` compares this text with
        # a cache's to see whether the cache is still valid, and an older mona refuses unknown keys.
        values = asdict(self)
        if self.window is None:
            del values["window"]
        return json.dumps(values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read what `to_json` wrote; a missing or unknown key, or a value of the wrong type, is an error."""
        try:
            values: dict[str, Any] = json.loads(text)
            unknown = set(values) - {f.name for f in fields(cls)}
            if unknown:
                raise InputError(f"unknown task key {', '.join(sorted(unknown))}; was it written by a newer mona?")
            values["classes"] = tuple(
                LabelClass(int(c["id"]), str(c["name"]), _triple(c["colour"])) for c in values["classes"]
            )
            if "intensity" in values:
                values["intensity"] = Intensity(**values["intensity"])
            for key in ("size", "window"):
                if values.get(key) is not None:
                    rows, columns = values[key]
                    values[key] = (int(rows), int(columns))
            values["seen"] = {str(k): (float(a), float(b)) for k, (a, b) in values.get("seen", {}).items()}
            return cls(**values)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"not a valid task ({error})") from error


def centred(size: tuple[int, int], window: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns that a central `window` covers in a slice of `size`.

    It starts at (size - window) // 2: if that difference is odd, one more row or column is left out after the window
    than before it.  Training and `SliceStack` both call this, so they cannot disagree.
    """
    if not all(1 <= inner <= outer for inner, outer in zip(window, size, strict=True)):
        raise InputError(f"the window must be between 1x1 and {size[0]}x{size[1]}, found {window}")
    top, left = (size[0] - window[0]) // 2, (size[1] - window[1]) // 2
    return slice(top, top + window[0]), slice(left, left + window[1])


def _triple(values: Any) -> tuple[int, int, int]:
    r, g, b = values
    return int(r), int(g), int(b)


RED, GREEN, BLUE = (230, 75, 60), (80, 190, 90), (60, 120, 230)  # distinct in print and for most colour-blind readers

CARDIAC = Task(
    name="cardiac",
    classes=(
        LabelClass(0, "background", (0, 0, 0)),
        LabelClass(1, "RV", BLUE),
        LabelClass(2, "Myo", GREEN),
        LabelClass(3, "LV", RED),
    ),
    modality="MR",
)
