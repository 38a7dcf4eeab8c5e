"""`--tta`: the network looks at a slice and at its three mirror images, and its answers are averaged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mona_infer.engines.base import Engine
from mona_infer.geometry.probabilities import Logits, softmax

MIRRORS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))  # axes that are flipped


def mirror_averaged(engine: Engine, slices: NDArray[np.float32]) -> Logits:
    """Logits of the mean probability, which is what a mask is made from."""
    total: Logits | None = None
    for axes in MIRRORS:
        mirrored = np.ascontiguousarray(np.flip(slices, axes)) if axes else slices
        chances = np.flip(softmax(engine.run(mirrored)), axes)
        total = chances if total is None else total + chances
    assert total is not None
    logits: Logits = np.log(np.maximum(total / len(MIRRORS), 1e-12))
    return logits
