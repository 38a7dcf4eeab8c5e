"""The ranges that training met, for `Task.seen`: what `mona segment` compares a scan with."""

from __future__ import annotations

from collections import defaultdict

from mona_infer.segmenting.warnings import measures
from mona_train.data.cache import Cache


def seen(cache: Cache) -> dict[str, tuple[float, float]]:
    """Least and greatest of each measure over the cases that are not for testing."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in cache.cases:
        if case.part != "test":
            for name, values in measures(case.shape, case.spacing, case.low, case.high).items():
                found[name] += values
    return {name: (float(f"{min(v):.6g}"), float(f"{max(v):.6g}")) for name, v in found.items()}
