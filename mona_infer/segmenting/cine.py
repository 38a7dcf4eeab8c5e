"""A heart's beat in numbers: end-diastole, end-systole and ejection fraction from a mask of every frame."""

from __future__ import annotations

import re
from typing import Any

# What data sets call the cavity of the left ventricle (ACDC, M&Ms, MMWHS, EMIDEC and their converters).
LEFT_VENTRICLE = {
    *("lv", "lvc", "lvcavity", "lvbp", "lvbloodpool", "lvendo"),
    *("leftventricle", "leftventriclecavity", "leftventricularcavity", "leftventriclebloodpool"),
    *("leftventriclebloodcavity", "leftventricularbloodpool"),
}


def left_ventricle(names: list[str]) -> str | None:
    """The one class that is the left ventricle by its name; none where no or several are."""
    found = [name for name in names if re.sub(r"[^a-z]", "", name.lower()) in LEFT_VENTRICLE]
    return found[0] if len(found) == 1 else None


def ejection(frames: list[dict[str, Any]]) -> dict[str, Any] | None:
    """ED is the frame in which the left ventricle is largest, ES the one in which it is smallest.

    `frames` are the findings of each frame by class.  Nothing is told where no class is the left ventricle, or where it
    was found in no frame.
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
