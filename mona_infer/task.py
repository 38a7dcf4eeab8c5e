"""`Task`: what a model solves, and everything that must be done to a scan before and after the network.

It is saved as JSON inside caches, checkpoints and exported models, so that what a model was trained with is
what `mona segment` applies.
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
    """One structure: the id it has in label files, its name and the colour it is drawn with."""

    id: int
    name: str
    colour: tuple[int, int, int]


@dataclass(frozen=True)
class Intensity:
    """How intensities become 0..1.

    minmax: the volume's own extremes.  window: `low`..`high` in the scan's units (HU for CT).
    percentile: the volume's `low`-th and `high`-th percentile.  What lies outside is clipped.
    """

    rule: str = "minmax"
    low: float = 0.0
    high: float = 100.0

    def __post_init__(self) -> None:
        if self.rule not in INTENSITY_RULES:
            raise InputError(f"expected an intensity rule among {', '.join(INTENSITY_RULES)}, found {self.rule!r}")
        if not self.low < self.high:
            raise InputError(f"expected an intensity range low < high, found {self.low}..{self.high}")
        if self.rule == "percentile" and not 0 <= self.low < self.high <= 100:
            raise InputError(f"expected percentiles in 0..100, found {self.low}..{self.high}")


@dataclass(frozen=True)
class Task:
    """Classes start with the background; a network's output channel n is `classes[n]`."""

    name: str
    classes: tuple[LabelClass, ...]
    slices: str = "stack"  # or a world axis
    fallback: str = "inferior-superior"  # the world axis of a stack with no thick axis
    intensity: Intensity = field(default_factory=Intensity)
    size: tuple[int, int] = (256, 256)  # rows, columns a slice is resized to
    window: tuple[int, int] | None = None  # the centre of it that the network sees (see `centred`); None: all
    image_order: int = 0  # 0 nearest, 1 linear: how slices are resized for the network (method 1.1)
    mask_order: int = 0  # 0: argmax, then nearest (method 1.5.1); 1: linear logits, then argmax
    modality: str | None = None
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)  # ranges met in training

    def __post_init__(self) -> None:
        ids = [c.id for c in self.classes]
        if len(ids) < 2 or ids[0] != 0 or len(set(ids)) != len(ids) or not all(0 <= i <= 65535 for i in ids):
            raise InputError(f"task {self.name}: expected distinct class ids, background 0 first, found {ids}")
        if self.slices not in ("stack", *WORLD_AXES) or self.fallback not in WORLD_AXES:
            raise InputError(f"task {self.name}: no slice axis is called {self.slices!r} or {self.fallback!r}")
        if min(self.size) < 1 or max(self.size) > 16384:
            raise InputError(f"task {self.name}: the network size {self.size} is not plausible")
        centred(self.size, self.input_size)  # refuses a window that does not fit
        if not {self.image_order, self.mask_order} <= {0, 1}:
            raise InputError(f"task {self.name}: resize orders are 0 (nearest) or 1 (linear)")

    @property
    def input_size(self) -> tuple[int, int]:
        """Rows and columns of what the network is given and of the logits it gives back."""
        return self.size if self.window is None else self.window

    def to_json(self) -> str:
        # Without a window the text is what it was before there were windows: `mona data prepare` compares it with
        # that of a cache to see whether the cache still holds, and an older mona refuses a key it does not know.
        found = asdict(self)
        if self.window is None:
            del found["window"]
        return json.dumps(found, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Read what `to_json` wrote; a key that is missing, unknown or of the wrong type is an error."""
        try:
            found: dict[str, Any] = json.loads(text)
            unknown = set(found) - {f.name for f in fields(cls)}
            if unknown:
                raise InputError(f"a task has no key {', '.join(sorted(unknown))}; was it written by a newer mona?")
            found["classes"] = tuple(
                LabelClass(int(c["id"]), str(c["name"]), _triple(c["colour"])) for c in found["classes"]
            )
            if "intensity" in found:
                found["intensity"] = Intensity(**found["intensity"])
            for key in ("size", "window"):
                if found.get(key) is not None:
                    rows, columns = found[key]
                    found[key] = (int(rows), int(columns))
            found["seen"] = {str(k): (float(a), float(b)) for k, (a, b) in found.get("seen", {}).items()}
            return cls(**found)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"this is not a task ({error})") from error


def centred(size: tuple[int, int], window: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of `size` that a central `window` takes.

    It starts at (size - window) // 2: where that difference is odd, one more row or column is left out behind the
    window than before it.  Training and `SliceStack` both ask here, so they cannot disagree about that one.
    """
    if not all(1 <= inner <= outer for inner, outer in zip(window, size, strict=True)):
        raise InputError(f"expected a window of at least 1x1 and at most {size[0]}x{size[1]}, found {window}")
    top, left = (size[0] - window[0]) // 2, (size[1] - window[1]) // 2
    return slice(top, top + window[0]), slice(left, left + window[1])


def _triple(values: Any) -> tuple[int, int, int]:
    r, g, b = values
    return int(r), int(g), int(b)


RED, GREEN, BLUE = (230, 75, 60), (80, 190, 90), (60, 120, 230)  # distinct in print and for most colour-blind eyes

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
