"""A label as a MONAI Label client sends it, with the ids of our classes.

3D Slicer numbers the segments that it exports 1, 2, ... and names them in `label_info`, in that order.  OHIF sends bare
bytes in the order of the .nrrd it was given, and `label_info` has the number of each name as `idx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mona_infer.errors import InputError
from mona_infer.io.read import label_ids, read_volume
from mona_infer.serving.received import suffix_of
from mona_infer.task import LabelClass
from mona_infer.volume import Volume
from mona_kernels.native import Labels


def read_sent(path: Path, image: Volume, *, bare: bool) -> Volume:
    """The label map that was received at `path`; a bare one has as many bytes as the scan has voxels."""
    if bare:
        data = path.read_bytes()
        if len(data) != image.voxels.size:
            raise InputError(f"expected a label of {image.voxels.size} bytes, one for each voxel, found {len(data)}")
        return image.with_voxels(np.frombuffer(data, np.uint8).reshape(image.shape, order="F"))
    named = path.with_name(f"{path.name}{suffix_of(path)}")
    path.rename(named)
    try:
        return read_volume(named)
    finally:
        named.unlink(missing_ok=True)


def with_our_ids(sent: Volume, classes: tuple[LabelClass, ...], info: Any, *, numbered_by_idx: bool) -> Volume:
    """Numbers as the client counted them, turned into class ids by the names that belong to them."""
    voxels = label_ids(sent)
    ids = {c.name.lower(): c.id for c in classes}
    names = _names(info, by_idx=numbered_by_idx) or dict(sent.names)
    if not any(name.lower() in ids for name in names.values()):
        return sent  # it names nothing of ours: its numbers are ids, or are refused later
    return sent.with_voxels(_renumbered(voxels, {k: name.lower() for k, name in names.items()}, ids))


def _names(info: Any, *, by_idx: bool) -> dict[int, str]:
    entries = [entry for entry in info if isinstance(entry, Mapping)] if isinstance(info, list) else []
    found = {}
    for place, entry in enumerate(entries, 1):
        number = entry.get("idx", place) if by_idx else place
        if isinstance(number, int) and isinstance(entry.get("name"), str):
            found[number] = entry["name"]
    return found


def _renumbered(voxels: Labels, names: dict[int, str], ids: dict[str, int]) -> Labels:
    table = np.zeros(int(voxels.max()) + 1, np.uint16)
    for number in np.unique(voxels):
        name = names.get(int(number), "background" if number == 0 else None)
        if number and name not in ids:
            known = ", ".join(ids)
            raise InputError(f"the label has a segment {name or int(number)!r}, which is not a class here ({known})")
        table[number] = ids.get(str(name), 0)
    found = table[voxels]
    return found.astype(np.uint8) if table.max() < 256 else found
