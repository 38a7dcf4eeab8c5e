"""Contrast: percentiles of what the network sees of a scan become 0 and 1, in training as when it is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.caches import cases

from mona_infer.errors import InputError
from mona_infer.geometry.intensity import ENOUGH, contrast_of
from mona_infer.geometry.stack import SliceStack
from mona_infer.geometry.windows import Box
from mona_infer.task import CARDIAC, Intensity, Task
from mona_infer.volume import Volume
from mona_train.data.adapters import adapter_named
from mona_train.data.cache import Cache
from mona_train.data.case import Case
from mona_train.data.contrast import with_contrast
from mona_train.data.prepare import STEPS
from mona_train.data.resolved import Resolved, read_resolved
from mona_train.data.scale import CONTRAST, at_one_scale
from mona_train.data.split import Split
from mona_train.data.stream import streams

TASK = replace(CARDIAC, spacing=1.0, window=(32, 32), first_look=True, contrast=CONTRAST)


def resolved_with(task: Task = TASK) -> tuple[Resolved, Cache]:
    """Four patients of three slices: the first is labelled, the last is not trained on."""
    images = np.random.default_rng(0).integers(10_000, 30_000, (12, 64, 80)).astype(np.uint16)
    images[:, :4] = STEPS  # a bright rim, which no window shows
    cache = Cache(Path(), "mine", task, tuple(cases(4, 1)), {}, images, np.ones((12, 64, 80), np.uint8))
    split = Split((0, 1, 2), tuple(range(3, 9)), (), (), ("p00",), ("p01", "p02"), "here")
    corners = {"p00_frame01": (8, 10), "p01_frame01": (30, 40), "p02_frame01": (-4, 60)}
    return Resolved("mine", Path(), Path(), "", split, task, {}, corners=corners), cache


def test_every_training_case_has_the_levels_of_its_own_window() -> None:
    resolved, cache = resolved_with()
    found = with_contrast(resolved, cache).levels
    assert list(found) == [*resolved.corners]
    around = np.pad(cache.images, ((0, 0), (32, 32), (32, 32))) / STEPS
    for n, (name, (top, left)) in enumerate(resolved.corners.items()):
        window = around[3 * n : 3 * n + 3, 32 + top : 64 + top, 32 + left : 64 + left]
        assert found[name] == pytest.approx(np.percentile(window, CONTRAST), abs=1e-4)
    assert found["p00_frame01"][1] < 0.5 < found["p02_frame01"][1]  # the last one shows the rim


def test_batches_have_these_levels_and_labels_do_not() -> None:
    resolved, cache = resolved_with()
    resolved = with_contrast(resolved, cache)
    (low, high), (top, left) = resolved.levels["p00_frame01"], resolved.corners["p00_frame01"]
    given = {"seed": 0, "window": (32, 32), "corners": resolved.corners, "levels": resolved.levels}
    for budget in (None, 0):
        labelled, _ = streams(cache, resolved.split, (3, 2), **given, budget=budget, margin=2)
        batch = labelled.batch(0)
        assert batch.rows is not None and batch.labels.min() == 1
        for picture, row in zip(batch.images[:, 0].numpy(), batch.rows.tolist(), strict=True):
            seen = cache.images[row, top - 2 : top + 34, left - 2 : left + 34] / STEPS
            np.testing.assert_allclose(picture, np.clip((seen - low) / (high - low), 0, 1), atol=2 / STEPS)


def test_a_resumed_run_keeps_its_levels_and_a_task_without_contrast_has_none(tmp_path: Path) -> None:
    resolved, cache = resolved_with()
    kept = replace(resolved, levels={"p00_frame01": (0.25, 0.5)})
    assert with_contrast(kept, cache) is kept
    kept.write(tmp_path)
    again = read_resolved(tmp_path)
    assert again is not None and again.levels == kept.levels and again.task.contrast == CONTRAST
    plain, cache = resolved_with(replace(TASK, contrast=None))
    assert with_contrast(plain, cache) is plain


def test_segmenting_has_the_levels_of_the_window_wherever_it_is_aimed() -> None:
    voxels = np.random.default_rng(1).integers(100, 400, (80, 64, 5)).astype(np.int16)  # columns rows slices
    voxels[:3], voxels[0, 0, 0] = 4000, 0
    volume = Volume(voxels, np.diag([-1.0, -1.0, 9.0, 1.0]))
    stack = SliceStack(volume, TASK)
    plain = SliceStack(volume, replace(TASK, contrast=None))
    for box in (Box(10, 40, 20, 50), Box(30, 0, 40, 8), None):
        aimed, shown = stack.aimed_at(box), plain.aimed_at(box).read(0, 5)
        low, high = np.percentile(shown, CONTRAST)
        assert aimed.contrast == pytest.approx((low, high))
        np.testing.assert_allclose(aimed.read(0, 5), np.clip((shown - low) / (high - low), 0, 1), atol=1e-5)
        np.testing.assert_array_equal(aimed.read(2, 4), aimed.read(0, 5)[2:4])  # of the scan, not of the batch
    np.testing.assert_array_equal(stack.read_whole(0, 5), plain.read_whole(0, 5))  # the first look sees it as it is
    assert plain.contrast is None


def test_percentiles_of_many_pixels_are_estimated_from_some() -> None:
    pictures = np.random.default_rng(2).random((8, 1000, 1000), np.float32)
    assert pictures.size > 4 * ENOUGH
    assert contrast_of(pictures, (1, 99)) == pytest.approx((0.01, 0.99), abs=2e-3)


@pytest.mark.parametrize(
    "wrong",
    [{"contrast": (5.0, 5.0)}, {"contrast": (-1.0, 99.0)}, {"contrast": (1.0, 101.0)}, {"spacing": None}],
    ids=str,
)
def test_a_task_with_a_contrast_that_cannot_be_is_refused(wrong: dict[str, tuple[float, float] | None]) -> None:
    with pytest.raises(InputError, match="contrast needs two percentiles and a scale"):
        replace(TASK, window=None, first_look=False, **wrong)


def test_ct_has_units_and_no_contrast_of_its_own() -> None:
    affine = np.diag([-1.0, -1.0, 9.0, 1.0])
    scans = [Case("a", "a", (), lambda: Volume(np.zeros((40, 40, 3), np.int16), affine), None)]
    for intensity, contrast in ((Intensity(), CONTRAST), (Intensity("window", -200, 300), None)):
        task, _ = at_one_scale(adapter_named("folder"), replace(CARDIAC, intensity=intensity), scans, 32)
        assert task.contrast == contrast
        assert Task.from_json(task.to_json()) == task
