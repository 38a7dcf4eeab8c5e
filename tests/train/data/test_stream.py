"""Streams: repeatable from any step, fair, split between ranks, and blind to unlabelled labels."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.caches import cache_of, cases

from mona_train.augment import cutmix, diffeo, jitter, weak
from mona_train.data.prepare import STEPS
from mona_train.data.split import split
from mona_train.data.stream import Order, step_generator, streams


@pytest.fixture
def data():
    """Every image pixel says which row it is; every label pixel is a secret of that row."""
    entries = cases(10, slices=4)
    rows = 10 * 2 * 4
    images = np.repeat(np.arange(rows, dtype=np.uint16), 16).reshape(rows, 4, 4)
    labels = (np.arange(rows, dtype=np.uint8) + 100).repeat(16).reshape(rows, 4, 4)
    cache = replace(cache_of(entries), images=images, labels=labels)
    return cache, split(cache, 0.3, seed=1)


def rows_of(batch):
    return (batch.images[:, 0, 0, 0] * STEPS).round().int().tolist()


@pytest.mark.parametrize("budget", [None, 0], ids=["resident", "mapped"])
def test_images_and_labels_belong_together(data, budget):
    cache, parts = data
    labelled, unlabelled = streams(cache, parts, (3, 5), seed=7, budget=budget)
    for step in range(40):
        a, b = labelled.batch(step), unlabelled.batch(step)
        assert a.images.shape == (3, 1, 4, 4)
        assert a.images.dtype == torch.float32
        assert a.labels.dtype == torch.int64
        assert a.labels[:, 0, 0].tolist() == [100 + row for row in rows_of(a)]
        assert set(rows_of(a)) <= set(parts.labelled)
        assert set(rows_of(b)) <= set(parts.unlabelled)


def test_the_same_seed_gives_the_same_50_batches_and_a_resume_goes_on_with_them(data):
    cache, parts = data

    def run(first, last, seed=3):
        pair = streams(cache, parts, (3, 5), seed=seed)
        return [[rows_of(stream.batch(step)) for stream in pair] for step in range(first, last)]

    whole = run(0, 50)
    assert run(0, 50) == whole
    assert run(20, 50) == whole[20:]
    assert run(0, 50, seed=4) != whole


@pytest.fixture
def pictures(data, tmp_path):
    """The same with pixels that all differ, in memory maps as a cache has them, at 9 x 8."""
    cache, parts = data
    rng = np.random.default_rng(0)
    shape = (len(cache.images), 9, 8)
    np.save(tmp_path / "images.npy", rng.integers(0, STEPS, shape).astype(np.uint16))
    np.save(tmp_path / "labels.npy", rng.integers(0, 4, shape).astype(np.uint8))
    images, labels = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("images", "labels"))
    return replace(cache, images=images, labels=labels), parts


@pytest.mark.parametrize("budget", [None, 0], ids=["resident", "mapped"])
@pytest.mark.parametrize(
    ("window", "rows", "columns"),
    [
        ((5, 4), slice(2, 7), slice(2, 6)),
        ((4, 5), slice(2, 6), slice(1, 6)),  # odd differences
        ((9, 8), slice(0, 9), slice(0, 8)),
        ((1, 8), slice(4, 5), slice(0, 8)),
    ],
    ids=str,
)
def test_a_window_is_the_centre_of_the_same_batches(pictures, budget, window, rows, columns):
    """Rows are drawn as without a window, from step 0 or from any other."""
    whole = streams(*pictures, (3, 5), seed=7, budget=budget)
    labelled, unlabelled = streams(*pictures, (3, 5), seed=7, budget=budget, window=window)
    for step in (0, 1, 2, 30, 11):
        a, b = labelled.batch(step), unlabelled.batch(step)
        assert a.images.shape == (3, 1, *window)
        assert torch.equal(a.images, whole[0].batch(step).images[:, :, rows, columns])
        assert torch.equal(a.labels, whole[0].batch(step).labels[:, rows, columns])
        assert torch.equal(b.images, whole[1].batch(step).images[:, :, rows, columns])


def test_only_the_window_is_held_and_counted(pictures):
    cache, parts = pictures
    enough = len(parts.unlabelled) * 4 * 4 * 2  # bytes of the larger array's window
    for budget, resident in ((enough, True), (enough - 1, False)):
        _, unlabelled = streams(cache, parts, (3, 5), seed=7, budget=budget, window=(4, 4))
        held = [item for item in reachable(unlabelled) if isinstance(item, torch.Tensor)]
        assert [t.untyped_storage().nbytes() for t in held] == ([enough] if resident else [])
        arrays = [item for item in reachable(unlabelled) if isinstance(item, np.ndarray) and item.ndim == 3]
        assert all(isinstance(item, np.memmap) for item in arrays)
        assert bool(arrays) != resident


def test_a_window_larger_than_the_slices_has_zeros_around_them(pictures):
    whole, _ = streams(*pictures, (3, 5), seed=7)
    labelled, _ = streams(*pictures, (3, 5), seed=7, window=(13, 8))
    batch, plain = labelled.batch(4), whole.batch(4)
    assert torch.equal(batch.images[:, :, 2:11], plain.images)
    assert torch.equal(batch.labels[:, 2:11], plain.labels)
    for maps in (batch.images[:, 0], batch.labels):
        assert not maps[:, :2].any() and not maps[:, 11:].any()


@pytest.mark.parametrize("budget", [None, 0], ids=["resident", "mapped"])
def test_each_case_has_its_window_where_its_corner_is_with_a_margin(pictures, budget):
    """Slices are 9x8; the windows of 4x4 with a margin of 1 reach beyond them at the top left and bottom right."""
    cache, parts = pictures
    corners = {case.name: (3, 2) if n % 2 else (6, -1) for n, case in enumerate(cache.cases)}
    given = {"seed": 7, "budget": budget}
    _, whole = streams(cache, parts, (3, 5), **given)
    _, unlabelled = streams(cache, parts, (3, 5), **given, window=(4, 4), corners=corners, margin=1)
    owner = [corners[case.name] for case in cache.cases for _ in case.rows]
    for step in range(4):
        full, cut = whole.batch(step).images, unlabelled.batch(step)
        padded = torch.nn.functional.pad(full, (9, 9, 9, 9))
        for n, at in enumerate(cut.rows.tolist()):
            top, left = owner[parts.unlabelled[at]]
            assert torch.equal(cut.images[n], padded[n, :, top + 8 : top + 14, left + 8 : left + 14])


def test_every_row_comes_once_an_epoch():
    order = Order(10, 3, seed=0, stream=0)
    drawn = np.concatenate([order.at(step) for step in range(20)])
    for epoch in range(6):
        assert sorted(drawn[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert drawn[:10].tolist() != drawn[10:20].tolist()


def test_ranks_share_an_epoch_without_overlap():
    alone = Order(24, 6, seed=5, stream=1)
    ranks = [Order(24, 3, seed=5, stream=1, rank=r, world_size=2) for r in range(2)]
    for step in range(9):
        together = np.concatenate([rank.at(step) for rank in ranks])
        np.testing.assert_array_equal(together, alone.at(step))


def test_a_batch_may_be_larger_than_the_data():
    assert sorted(Order(2, 5, seed=0, stream=0).at(0)[:4]) == [0, 0, 1, 1]


def reachable(thing):
    """Every object that can be reached from `thing`, and the memory behind arrays and tensors."""
    seen, todo = {}, [thing]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, type) or type(item).__name__ in ("module", "function"):
            continue
        seen[id(item)] = item
        todo += gc.get_referents(item)
        if getattr(item, "base", None) is not None:
            todo.append(item.base)
    return seen.values()


@pytest.mark.parametrize("window", [None, (2, 3)], ids=str)
@pytest.mark.parametrize("budget", [None, 0], ids=["resident", "mapped"])
def test_no_label_of_an_unlabelled_slice_can_be_reached(data, budget, window):
    cache, parts = data
    _, unlabelled = streams(cache, parts, (3, 5), seed=7, budget=budget, window=window)
    batch = unlabelled.batch(0)
    assert not hasattr(batch, "labels")
    secrets = {100 + row for row in parts.unlabelled}
    for item in [*reachable(unlabelled), *reachable(batch)]:
        if isinstance(item, np.ndarray | torch.Tensor) and "8" in str(item.dtype):
            values = set(np.asarray(item).ravel().tolist())
            assert not values & secrets, f"{type(item)} of {item.shape} holds labels"
    assert cache.labels is not None  # still alive: it is out of reach, not gone


def test_the_search_would_find_a_leak(data):
    cache, parts = data
    _, unlabelled = streams(cache, parts, (3, 5), seed=7)
    unlabelled.leak = cache
    assert any(item is cache.labels for item in reachable(unlabelled))


def test_a_resident_labelled_stream_holds_only_its_own_labels(data):
    cache, parts = data
    labelled, _ = streams(cache, parts, (3, 5), seed=7)
    secrets = {100 + row for row in parts.unlabelled}
    for item in reachable(labelled):
        if isinstance(item, torch.Tensor) and item.dtype == torch.uint8:
            assert not set(item.flatten().tolist()) & secrets


def test_an_unlabelled_row_cannot_enter_the_labelled_stream(data):
    cache, parts = data
    entries = [replace(c, first_label=None) if c.patient == "p00" else c for c in cache.cases]
    wrong = replace(parts, labelled=(0, 1, 2))
    with pytest.raises(ValueError, match="row 0 has no label"):
        streams(replace(cache, cases=tuple(entries)), wrong, (1, 1), seed=0)


def test_without_unlabelled_slices_there_is_no_second_stream(data):
    cache, parts = data
    labelled, unlabelled = streams(cache, replace(parts, unlabelled=()), (2, 2), seed=0)
    assert unlabelled is None
    assert len(labelled) == len(parts.labelled)


def test_augmented_batches_repeat_and_resume_to_the_bit(data):
    """What a network would see: drawn, moved, mixed and jittered, from step 0 and from step 20 on."""
    cache, parts = data
    rng = np.random.default_rng(0)
    shape = (len(cache.images), 32, 32)
    cache = replace(
        cache,
        images=rng.integers(0, STEPS, shape).astype(np.uint16),
        labels=rng.integers(0, 4, shape).astype(np.uint8),
    )

    def run(first, last, rank=0):
        labelled, unlabelled = streams(cache, parts, (2, 3), seed=5)
        for step in range(first, last):
            a, b, generator = labelled.batch(step), unlabelled.batch(step), step_generator(5, rank, step)
            geometry = weak(generator, 2, (32, 32)).then(diffeo(generator, 2))
            view = geometry.apply(a.images, a.labels)
            mixed = cutmix(generator, 3, (32, 32)).of(weak(generator, 3, (32, 32)).apply(b.images).images)
            yield torch.cat([view.images, jitter(generator, mixed)]), view.labels

    whole = list(run(0, 50))
    for again, start in ((run(0, 50), 0), (run(20, 50), 20)):
        for (images, labels), (others, other_labels) in zip(again, whole[start:], strict=True):
            assert torch.equal(images, others)
            assert torch.equal(labels, other_labels)
    assert not torch.equal(next(run(0, 1, rank=1))[0], whole[0][0])
