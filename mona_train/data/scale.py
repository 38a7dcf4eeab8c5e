"""The scale of slices that keep their shape: one ruler for all scans of a data set, in millimetres or in pixels.

A network learns an organ's size.  Squeezed into a square, hearts of one size and shape are stretched differently from
scan to scan; at one scale they are not (docs/results.md has what that is worth).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mona_infer.geometry.slicing import slicing
from mona_infer.task import Task
from mona_train.data.case import Adapter, Case

CONTRAST = 1.0, 99.0  # percentiles of what the network sees: MR intensities differ from scan to scan
SAMPLED = 16  # scans whose shape and spacing are looked at


def at_one_scale(adapter: Adapter, task: Task, cases: list[Case], pixels: int) -> tuple[Task, str]:
    """The Task at a scale where the long side of a typical slice has `pixels`, and the reason in words.

    Slices are never made larger than they typically are: that adds no detail, only time.
    """
    sides, lengths = [], []
    for case in cases[:: -(-len(cases) // SAMPLED)]:
        image = case.image()
        order = slicing(image.affine, task.slices, task.fallback)
        _, rows, columns = order.view(image.voxels).shape
        _, down, across = order.reorder(image.spacing)
        sides.append(max(rows, columns))
        lengths.append(max(rows * down, columns * across))
    side, length = float(np.median(sides)), float(np.median(lengths))
    rules: dict[str, Any] = {"orientation": adapter.orientation, "mask_order": 1}
    if task.intensity.rule == "minmax":  # CT has units
        rules["contrast"] = CONTRAST
    if adapter.ruler == "pixels":
        long_side = round(min(pixels, side))
        return replace(task, long_side=long_side, **rules), (
            f"the long side of every slice becomes {long_side} pixels, its shape is kept ({adapter.name} does not "
            f"always have a spacing; the typical long side is {side:g} pixels)"
        )
    spacing = float(f"{length / min(pixels, side):.3g}")
    return replace(task, spacing=spacing, **rules), (
        f"slices get a spacing of {spacing:g} mm, their shape is kept (the long side of a typical one is "
        f"{length:.4g} mm in {side:g} pixels, and becomes {length / spacing:.0f})"
    )
