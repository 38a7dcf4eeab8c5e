"""A heart's beat in numbers: end-diastole, end-systole and ejection fraction from a mask of every frame."""

from __future__ import annotations

import re

from mona_infer.segmenting.report import CineReport, FrameReport, Moment

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


def heartbeat(frames: list[FrameReport]) -> CineReport | None:
    """End-diastole is the frame in which the left ventricle is largest, end-systole the one in which it is smallest.

    None where no class is the left ventricle, or where it is empty in every frame.
    """
    name = left_ventricle(list(frames[0].classes))
    if name is None:
        return None
    volumes = [frame.classes[name].ml for frame in frames]
    largest, smallest = (Moment(volumes.index(ml), ml) for ml in (max(volumes), min(volumes)))
    return CineReport(name, largest, smallest) if largest.ml > 0 else None
