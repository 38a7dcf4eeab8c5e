"""Which patient a volume belongs to, judging by its file name."""

from __future__ import annotations

import re

TIME = re.compile(r"[_-](frame\d+|ED|ES|tp\d+|t\d+|visit\d+|ses(sion)?-?\d+)$", re.IGNORECASE)


def patients_of(names: list[str]) -> dict[str, str]:
    """Name -> patient: names that differ only in a frame or time at the end (_frame01, _ED, _ses-2) are one patient.

    If that would make everything one patient, the endings number patients, not times.
    """
    out = {name: TIME.sub("", name) or name for name in names}
    return out if len(set(out.values())) > 1 else {name: name for name in names}
