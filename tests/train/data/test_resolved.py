"""What a run resolves of slices that keep their shape: which window, placed by whom, and that it is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.caches import cases

from mona_infer.errors import InputError
from mona_infer.task import CARDIAC
from mona_train.config.presets import preset
from mona_train.data.adapters import adapter_named
from mona_train.data.cache import Cache
from mona_train.data.resolved import Resolved, check_settings, content_of, labels_for_geometry, read_resolved, resolve

SIZE = (200, 180)
TASK = replace(CARDIAC, name="mine", spacing=1.5, mask_order=1)


def cache_of(task: Any = TASK) -> Cache:
    """Eight patients of three slices; the organ of each is 10 pixels wider than that of the last."""
    entries = [replace(case, frame=None if task.squeezed else SIZE) for case in cases(8, 1)]
    labels = np.zeros((24, *SIZE), np.uint8)
    for n in range(8):
        labels[3 * n + 1, 50 : 60 + 10 * n, 80:90] = 1
    images = np.zeros((24, *SIZE), np.uint16)
    return Cache(Path("nowhere"), "mine", task, tuple(entries), {}, images, labels, "slices get a spacing of 1.5 mm")


def resolved_with(cache: Cache, **values: Any) -> Resolved:
    config = preset("cpu", dataset="mine", **{"ratio": 0.2, "method": "unet-l", **values})
    return resolve(config, adapter_named("folder"), Path("data"), cache)


def test_auto_is_a_window_around_the_organ_of_the_labelled_patients_placed_by_a_first_look() -> None:
    cache = cache_of()
    found = resolved_with(cache)
    (patient,) = found.split.labelled_patients
    wide = 10 + 10 * int(patient.removeprefix("p"))
    side = -(-wide * 3 // 2 // 16) * 16
    assert found.task == replace(TASK, window=(side, side), first_look=True, seen=found.task.seen)
    assert found.geometry == (
        f"slices get a spacing of 1.5 mm; organs of labelled patients are up to {wide} pixels wide: "
        f"the network sees {side}x{side} around them, found by a first look"
    )
    assert found.corners == {}  # the first look has them


def test_all_methods_get_the_same_window() -> None:
    """unet-f uses all labels, and would get a larger one."""
    cache = cache_of()
    few, every = (resolved_with(cache, method=method) for method in ("unet-l", "unet-f"))
    assert len(few.split.labelled) < len(every.split.labelled)
    assert few.task == every.task
    config = preset("cpu", dataset="mine", ratio=0.2, method="unet-f")
    assert labels_for_geometry(config, cache) == few.split.labelled
    other = resolved_with(cache, ratio=None, method="unet-f")
    assert other.task.window != few.task.window


def test_full_is_the_whole_slice_in_multiples_of_16_and_needs_no_first_look() -> None:
    found = resolved_with(cache_of(), window="full")
    assert (found.task.window, found.task.first_look) == ((208, 192), False)
    assert found.geometry.endswith("mm; the network sees whole slices, in 208x192")


def test_a_window_that_is_asked_for_is_placed_by_a_first_look() -> None:
    found = resolved_with(cache_of(), window="96x112")
    assert (found.task.window, found.task.first_look) == ((96, 112), True)
    assert found.geometry.endswith("mm; the network sees 96x112 around the organ, found by a first look")


@pytest.mark.parametrize(
    ("window", "words"), [("100x100", "multiples of 16"), ("wide", "full, auto or a size"), ("96", "full, auto or")]
)
def test_a_window_that_cannot_be_is_refused(window: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        resolved_with(cache_of(), window=window)


def test_squeezed_slices_have_a_centred_window_and_no_first_look() -> None:
    cache = cache_of(replace(CARDIAC, name="mine", size=SIZE))
    assert resolved_with(cache, window="full").task.window is None
    assert not resolved_with(cache, window="auto").task.first_look
    assert resolved_with(cache, window="96x96").task.window == (96, 96)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = replace(resolved_with(cache_of()), corners={"p00_frame01": (-3, 12), "p01_frame01": (40, 0)})
    found.write(tmp_path)
    assert read_resolved(tmp_path) == found


def test_a_run_of_an_older_version_had_squeezed_slices(tmp_path: Path) -> None:
    old = resolved_with(cache_of(), pixels=0)
    old.asked.pop("pixels")
    config = preset("cpu", dataset="mine", ratio=0.2, method="unet-l", pixels=0)
    check_settings(old, config, tmp_path)
    with pytest.raises(InputError, match="says pixels = 192, but the run was started with 0"):
        check_settings(old, replace(config, pixels=192), tmp_path)


def test_the_content_of_a_cache_is_that_of_its_scale() -> None:
    cache = cache_of()
    assert content_of(cache) == content_of(cache_of())
    assert content_of(cache) != content_of(cache_of(replace(TASK, spacing=1.6)))
