"""The contrast of every training case: percentiles of what the network sees of it (`Task.contrast`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mona_infer.geometry.intensity import contrast_of
from mona_infer.geometry.slicing import spread
from mona_train.data.cache import Cache
from mona_train.data.prepare import STEPS
from mona_train.data.resolved import Resolved
from mona_train.data.stream import crop_of


def with_contrast(resolved: Resolved, cache: Cache) -> Resolved:
    """What a run resolved, with the values that become 0 and 1 in each case that is trained on."""
    percentiles = resolved.task.contrast
    if percentiles is None or resolved.levels:
        return resolved
    crop = crop_of(cache, resolved.task.window, resolved.corners)
    training = {*resolved.split.labelled, *resolved.split.unlabelled}
    levels = {}
    for case in cache.cases:
        if not training.isdisjoint(case.rows):
            rows = np.asarray(spread(list(case.rows)))
            levels[case.name] = contrast_of(
                crop.of(cache.images, rows, rows).astype(np.float32) / np.float32(STEPS), percentiles
            )
    return replace(resolved, levels=levels)
