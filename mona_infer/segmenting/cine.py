"""End-diastole, end-systole and ejection fraction from the masks of a cine's frames."""

from __future__ import annotations

import re

from mona_infer.segmenting.report import CineReport, FrameReport, Moment

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
