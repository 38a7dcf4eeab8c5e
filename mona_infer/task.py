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
ORIENTATIONS = ("world", "stored", "portrait")
LARGEST = 16384  # side of a slice
LOOK = 64  # side of the picture in which the first look finds the organ
# Keys that came later than the first models, and what their absence means.
LATER: dict[str, Any] = {"window": None, "spacing": None, "long_side": None, "first_look": False}
LATER |= {"contrast": None, "least_certain": 0.0, "orientation": "world", "keep_largest": (), "fill_holes": ()}


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
    # Scale, one of three: so many millimetres a pixel; so many pixels along the long side, the shape kept; or, if both
    # are None, squeezed to `size` whatever the shape (method 1.1).
    spacing: float | None = None
    long_side: int | None = None
    size: tuple[int, int] = (256, 256)
    # Percentiles of what the windows show that become 0 and 1, after `intensity`.  A bright spot elsewhere in the scan
    # then no longer darkens the organ.  None: as they are.
    contrast: tuple[float, float] | None = None
    # What the network sees: a window of this size around the organ if there is a first look, else windows over the
    # whole slice; of a squeezed slice its centre (see `centred`), or all of it if None.
    window: tuple[int, int] | None = None
    first_look: bool = False
    least_certain: float = 0.0  # the first look's certainty below which the user is warned: rare in training scans
    # Where training data has no trustworthy orientation: "stored" ignores affines that a tool made up; "portrait" also
    # turns slices that are wider than high (see `mona_infer.geometry.slicing.oriented`)
    orientation: str = "world"
    # Of a squeezed slice: 0 nearest, 1 linear.  Others are area-averaged where they shrink, linear where they grow.
    image_order: int = 0
    mask_order: int = 0  # 0: argmax, then nearest (method 1.5.1); 1: resize the logits linearly, then argmax
    keep_largest: tuple[int, ...] = ()  # ids of classes of which only the largest piece is kept
    fill_holes: tuple[int, ...] = ()  # ids of classes whose holes are filled
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
        if min(self.size) < 1 or max(self.size) > LARGEST:
            raise InputError(f"task {self.name}: the slice size must be between 1 and {LARGEST}, found {self.size}")
        self._check_scale()
        if not {self.image_order, self.mask_order} <= {0, 1}:
            raise InputError(f"task {self.name}: resize orders must be 0 (nearest) or 1 (linear)")

    def _check_scale(self) -> None:
        if not self.squeezed:
            if self.spacing is not None and (self.long_side is not None or not 1e-3 <= self.spacing <= 1e3):
                raise InputError(f"task {self.name}: give a spacing from 0.001 to 1000 mm or a long side, not both")
            if self.long_side is not None and not 1 <= self.long_side <= LARGEST:
                raise InputError(f"task {self.name}: the long side must be from 1 to {LARGEST}, found {self.long_side}")
            if self.window is not None and not all(1 <= side <= LARGEST for side in self.window):
                raise InputError(f"task {self.name}: the window must be from 1 to {LARGEST}, found {self.window}")
        else:
            centred(self.size, self.input_size)  # refuses a window that does not fit
            if self.first_look:
                raise InputError(f"task {self.name}: a first look needs slices whose shape is kept")
        if self.contrast is not None and (self.squeezed or not 0 <= self.contrast[0] < self.contrast[1] <= 100):
            raise InputError(f"task {self.name}: contrast needs two percentiles and a scale, found {self.contrast}")
        if self.orientation not in ORIENTATIONS:
            raise InputError(
                f"task {self.name}: unknown orientation {self.orientation!r}; choose {', '.join(ORIENTATIONS)}"
            )
        unknown = {*self.keep_largest, *self.fill_holes} - {c.id for c in self.classes[1:]}
        if unknown:
            raise InputError(f"task {self.name}: there is no class {sorted(unknown)[0]} to post-process")

    @property
    def squeezed(self) -> bool:
        """Whether slices are resized to one size, whatever their shape."""
        return self.spacing is None and self.long_side is None

    @property
    def input_size(self) -> tuple[int, int]:
        """Rows and columns of the network's input and of the logits it returns."""
        return self.size if self.window is None else self.window

    def frame(self, shape: tuple[int, int], spacing: tuple[float, float]) -> tuple[int, int]:
        """Rows and columns of a slice at the network's scale, given those it has and their spacing in mm."""
        if self.spacing is not None:
            factors = spacing[0] / self.spacing, spacing[1] / self.spacing
        elif self.long_side is not None:
            factors = (self.long_side / max(shape),) * 2
        else:
            return self.size
        rows, columns = (max(1, round(side * factor)) for side, factor in zip(shape, factors, strict=True))
        return rows, columns

    def to_json(self) -> str:
        # Keys that an older mona did not know are written only where they say something: `mona data prepare` compares
        # this text with a cache's to see whether the cache is still valid, and an older mona refuses unknown keys.
        values = asdict(self)
        for name, default in LATER.items():
            if values[name] == default:
                del values[name]
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
            if values.get("contrast") is not None:
                low, high = values["contrast"]
                values["contrast"] = (float(low), float(high))
            for key in ("keep_largest", "fill_holes"):
                values[key] = tuple(int(n) for n in values.get(key, ()))
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
