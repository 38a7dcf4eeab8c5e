"""A summary of a prepared data set, for people to read."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from mona_train.data.cache import Cache
from mona_train.data.window import organ_window


def fingerprint(cache: Cache) -> dict[str, Any]:
    cases = cache.cases
    labelled = [case for case in cases if case.first_label is not None]
    spacing = np.array([case.spacing for case in cases])
    slices = np.array([case.slices for case in cases])
    sizes = Counter(f"{case.shape[1]}x{case.shape[2]}" for case in cases)
    voxels = np.sum([case.voxels for case in labelled], axis=0) if labelled else np.zeros(len(cache.task.classes))
    same: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        same[case.image_hash].add(case.patient)
    return {
        "dataset": cache.task.name,
        "geometry": _geometry(cache),
        "patients": len({case.patient for case in cases}),
        "volumes": len(cases),
        "labelled volumes": len(labelled),
        "slices": len(cache.images),
        "labelled slices": len(cache.labels),
        "slices per volume": f"{slices.min()} to {slices.max()}, median {np.median(slices):g}",
        "in-plane sizes": dict(sizes.most_common(5))
        | ({"others": n} if (n := sum(sizes.values()) - sum(count for _, count in sizes.most_common(5))) else {}),
        "in-plane spacing": f"{spacing[:, 1:].min():.3g} to {spacing[:, 1:].max():.3g} mm",
        "slice spacing": f"{spacing[:, 0].min():.3g} to {spacing[:, 0].max():.3g} mm",
        "classes": {c.name: float(n / max(voxels.sum(), 1)) for c, n in zip(cache.task.classes, voxels, strict=True)},
        "same images twice": sorted({" = ".join(sorted(p)) for p in same.values() if len(p) > 1}),
    }


def _geometry(cache: Cache) -> str:
    """The scale of the cached slices, and the window that a run would choose with all labels."""
    if cache.task.squeezed:
        return cache.geometry
    rows = [row for case in cache.cases if case.part in (None, "train") for row in case.label_rows]
    return f"{cache.geometry}; {organ_window(cache, rows)[2]}"
