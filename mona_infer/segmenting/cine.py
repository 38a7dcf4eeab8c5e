"""End-diastole, end-systole and ejection fraction from the masks of a cine's frames."""

from __future__ import annotations

import re
from typing import Any

# Names that data sets use for the left-ventricular cavity (ACDC, M&Ms, MMWHS, EMIDEC and their converters).
LEFT_VENTRICLE = {
    *("lv", "lvc", "lvcavity", "lvbp", "lvbloodpool", "lvendo"),
    *("leftventricle", "leftventriclecavity", "leftventricularcavity", "leftventriclebloodpool"),
    *("leftventriclebloodcavity", "leftventricularbloodpool"),
}


def left_ventricle(names: list[str]) -> str | None:
    """The class named like the left ventricle; None if there is not exactly one."""
    matches = [name for name in names if re.sub(r"[^a-z]", "", name.lower()) in LEFT_VENTRICLE]
    return matches[0] if len(matches) == 1 else None


def ejection(frames: list[dict[str, Any]]) -> dict[str, Any] | None:
    """ED is the frame where the left ventricle is largest, ES the one where it is smallest.

    `frames` has the measurements of each frame by class.  None if no class is the left ventricle, or it is in no frame.
    """
    name = left_ventricle(list(frames[0]))
    if name is None:
        return None
    volumes = [float(frame[name]["ml"]) for frame in frames]
    largest, smallest = max(volumes), min(volumes)
    if largest == 0:
        return None
    return {
        "class": name,
        "ED": {"frame": volumes.index(largest), "ml": largest},
        "ES": {"frame": volumes.index(smallest), "ml": smallest},
        "stroke_ml": round(largest - smallest, 4),
        "ejection_fraction": round((largest - smallest) / largest, 4),
    }
