"""Numbers of a mask: millilitres, areas, confidence, scores against a reference; and a picture of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.io.read import label_ids
from mona_infer.segmenter import Segmentation
from mona_infer.segmenting.report import ClassReport
from mona_infer.task import LabelClass
from mona_infer.volume import Volume
from mona_kernels.native import Labels, slice_counts

if TYPE_CHECKING:
    from mona_infer.evaluation.metrics import Score
    from mona_infer.viewing.pictures import Picture

COLUMNS, MOST = 4, 12  # of a preview: tiles in a row, and of one scan


def class_reports(segmentation: Segmentation) -> dict[str, ClassReport]:
    """Volume, areas and confidence of every class but the background."""
    stack, classes = segmentation.stack, segmentation.stack.task.classes[1:]
    return class_volumes(segmentation.mask, stack.slicing.view, stack.slicing.axes[0], classes, segmentation.confidence)


def class_volumes(
    mask: Volume,
    view: Callable[[NDArray[Any]], NDArray[Any]],
    slice_axis: int,
    classes: Sequence[LabelClass],
    confidence: Mapping[str, float] | None = None,
) -> dict[str, ClassReport]:
    """The same of any mask of label ids; `view` shows it slices first, `slice_axis` is their stored axis."""
    matrix = mask.affine[:3, :3]
    rows, columns = (axis for axis in range(3) if axis != slice_axis)
    area = float(np.linalg.norm(np.cross(matrix[:, rows], matrix[:, columns])))  # mm2 of a pixel
    volume = abs(float(np.linalg.det(matrix)))  # mm3 of a voxel
    counts = slice_counts(view(mask.voxels), [c.id for c in classes])
    reports = {}
    for n, c in enumerate(classes):
        sure = (confidence or {}).get(c.name, math.nan)
        reports[c.name] = ClassReport(
            id=c.id,
            voxels=int(counts[:, n].sum()),
            ml=round(float(counts[:, n].sum()) * volume / 1000, 4),
            areas_mm2=[round(float(a) * area, 2) for a in counts[:, n]],
            confidence=None if math.isnan(sure) else round(sure, 4),
        )
    return reports


def scores(segmentation: Segmentation, reference: Volume) -> dict[str, Score]:
    """DSC and distances (mm, `sound` definition) by class name; the reference lies on the scan's grid."""
    return scores_of(np.asarray(segmentation.mask.voxels), reference, segmentation.stack.task.classes)


def scores_of(mask: Labels, reference: Volume, classes: Sequence[LabelClass]) -> dict[str, Score]:
    """The same for a mask that was made earlier."""
    from mona_infer.evaluation.metrics import score_case

    names = {c.id: c.name for c in classes[1:]}
    measured = score_case(mask, label_ids(reference), reference.steps, list(names))
    return {names[label]: score for label, score in measured.items()}


def preview(segmentation: Segmentation, name: str, frame: int | None = None) -> list[list[tuple[str, Picture]]]:
    """Rows of slices with the mask over them, spread over the part of the stack that the mask fills.

    For frame `frame` of a cine, the middle slice alone, which shows the beat.
    """
    from mona_infer.viewing.pictures import overlay, square_pixels

    stack, view = segmentation.stack, segmentation.stack.slicing.view
    if frame is None:
        filled = np.nonzero([plane.any() for plane in view(segmentation.mask.voxels)])[0]
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, len(stack) - 1)
        chosen = np.unique(np.linspace(first, last, min(MOST, last - first + 1)).round().astype(int))
    else:
        chosen, name = np.array([len(stack) // 2]), f"{name}, frame {frame}"
    _, rows, columns = stack.slicing.reorder(stack.volume.spacing)
    tiles = []
    for k in chosen:
        plane = stack.volume.intensities(view(stack.volume.voxels)[k])
        grey = (plane - stack.low) / max(stack.high - stack.low, 1e-9)
        picture = overlay(grey, view(segmentation.mask.voxels)[k], stack.task)
        tiles.append((f"{name}, slice {k}", square_pixels(picture, (rows, columns))))
    return [tiles[n : n + COLUMNS] for n in range(0, len(tiles), COLUMNS)]
