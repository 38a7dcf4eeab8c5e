"""The ranges of the training data, kept as `Task.seen`: `mona segment` warns about a scan outside of them."""

from __future__ import annotations

from collections import defaultdict

from mona_infer.segmenting.warnings import measures
from mona_train.data.cache import Cache


def training_ranges(cache: Cache) -> dict[str, tuple[float, float]]:
    """Minimum and maximum of each measure over all cases but the test cases."""
    collected: dict[str, list[float]] = defaultdict(list)
    for case in cache.cases:
        if case.part != "test":
            for name, values in measures(case.shape, case.spacing, case.low, case.high).items():
                collected[name] += values
    return {name: (float(f"{min(v):.6g}"), float(f"{max(v):.6g}")) for name, v in collected.items()}
