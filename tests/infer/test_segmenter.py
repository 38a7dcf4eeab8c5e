"""`Segmenter` on a network known by heart: masks, orientations, batches, mirrors, pieces, warnings."""

import time
from dataclasses import replace

import numpy as np
import pytest
from helpers import models
from helpers.greedy_engine import Greedy
from helpers.orientations import TURNS, restored, rotation
from scipy import ndimage

from mona_infer import Segmenter, Volume
from mona_infer.errors import InputError
from mona_infer.geometry.probabilities import in_steps, softmax
from mona_infer.geometry.stack import SliceStack
from mona_infer.models.file import opened
from mona_infer.segmenter import PLANNED
from mona_infer.segmenting.warnings import check_modality, training_differences
from mona_infer.system.memory_budget import TooLarge, parse_size, resident
from mona_infer.task import Intensity
from mona_kernels.native import keep_largest

AFFINE = np.diag([1.5, 1.5, 8.0, 1.0])
SCAN = models.scan()


def model(task=models.TASK):
    return opened("model.onnx", models.model_bytes(task))


def segmenter(task=models.TASK, **options):
    return Segmenter(model(task), engine="cpu", threads=1, **options)


def test_the_mask_is_that_of_the_network_on_the_scans_grid():
    """Network size = scan size, so that the answer is known without any resizing."""
    size = replace(models.TASK, size=(36, 40))  # rows run along j, columns along i
    volume = Volume(SCAN, AFFINE)
    mask = segmenter(size)(volume)
    assert mask.voxels.dtype == np.uint8
    np.testing.assert_array_equal(mask.affine, AFFINE)
    wanted = np.minimum(np.floor(SCAN / 1000 * 4), 3)
    near = np.abs(SCAN / 1000 * 4 - np.rint(SCAN / 1000 * 4)) < 1e-3  # a band's edge: rounding may decide
    np.testing.assert_array_equal(mask.voxels[~near], wanted[~near])


@pytest.mark.parametrize("angles", [(0, 0, 0), (10, -20, 30)])
@pytest.mark.parametrize("window", [None, (24, 20)])
def test_one_anatomy_stored_in_48_orders_gives_one_mask(angles, window):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) @ np.diag([1.5, 1.5, 8.0])
    affine[:3, 3] = 5, -7, 11
    cut = segmenter(replace(models.TASK, window=window, mask_order=1))
    first = cut(Volume(SCAN, affine)).voxels
    assert len(np.unique(first)) > 2
    for axes, flips in TURNS:
        voxels, turned = restored(SCAN, affine, axes, flips)
        mask = cut(Volume(voxels, turned)).voxels
        np.testing.assert_array_equal(mask, restored(first, affine, axes, flips)[0])


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 64])
def test_batches_of_any_size_give_the_same(batch):
    volume = Volume(models.scan(1, (20, 20, 13)), AFFINE)
    np.testing.assert_array_equal(segmenter(batch=batch)(volume).voxels, segmenter(batch=4)(volume).voxels)


def test_overlapped_gives_the_bits_of_one_after_the_other(monkeypatch):
    """Whoever has to wait for whom: reading, network and restoring are delayed at random."""
    volume, rng = Volume(models.scan(1, (20, 20, 23)), AFFINE), np.random.default_rng(0)
    cut = segmenter(batch=3)
    stack = SliceStack(volume, cut.task)
    wanted = stack.empty_mask()
    for start, slices in stack.batches(3):
        stack.restore(wanted, start, cut.engine.run(slices))

    def late(call):
        return lambda *args: (time.sleep(rng.random() * 0.004), call(*args))[1]

    for place, name in ((SliceStack, "read"), (SliceStack, "restore"), (cut.engine, "run")):
        monkeypatch.setattr(place, name, late(getattr(place, name)))
    for _ in range(5):
        np.testing.assert_array_equal(cut(volume).voxels, wanted)


def test_few_batches_are_held_at_a_time(monkeypatch):
    """Reading runs at most three batches ahead of restoring's end: two waiting, one in the network, two behind."""
    at_work, most = [0], [0]
    read, restore = SliceStack.read, SliceStack.restore

    def counted_read(self, start, stop):
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        return read(self, start, stop)

    def counted_restore(self, *args):
        restore(self, *args)
        at_work[0] -= 1

    monkeypatch.setattr(SliceStack, "read", counted_read)
    monkeypatch.setattr(SliceStack, "restore", counted_restore)
    segmenter(batch=1)(Volume(models.scan(1, (20, 20, 40)), AFFINE))
    assert at_work == [0]
    assert most[0] <= 6


def test_an_error_while_reading_or_restoring_reaches_the_caller(monkeypatch):
    def fail(*_):
        raise OSError("the disk is gone")

    for name in ("read", "restore"):
        with monkeypatch.context() as patch:
            patch.setattr(SliceStack, name, fail)
            with pytest.raises(OSError, match="the disk is gone"):
                segmenter()(Volume(SCAN, AFFINE))


def test_mirrors_change_nothing_for_a_network_that_looks_at_single_pixels():
    volume = Volume(SCAN, AFFINE)
    plain, mirrored = segmenter()(volume).voxels, segmenter(tta=True)(volume).voxels
    assert (plain != mirrored).mean() < 1e-3


def test_probabilities_and_confidence():
    cut, volume = segmenter(replace(models.TASK, window=(24, 20))), Volume(SCAN, AFFINE)
    found = cut.segment(volume, confidence=True, probabilities=True)
    maps = np.stack([p.voxels for p in found.probabilities.values()]).astype(float)
    assert list(found.probabilities) == ["background", "RV", "Myo", "LV"]
    np.testing.assert_allclose(maps.sum(axis=0), 255, atol=2)
    assert maps[0, 0, 0, 0] == 255  # outside the window
    assert all(0.25 < sure <= 1 for sure in found.confidence.values())
    assert found.probabilities["RV"].slope == pytest.approx(1 / 255)


@pytest.mark.parametrize("tta", [False, True], ids=["plain", "tta"])
@pytest.mark.parametrize("window", [None, (24, 20)], ids=["whole", "window"])
@pytest.mark.parametrize("order", [0, 1], ids=["nearest", "linear"])
@pytest.mark.parametrize("shape", [(40, 36, 5), (23, 70, 4)], ids=str)
def test_the_largest_probability_is_that_of_the_masks_class(shape, order, window, tta):
    """At every voxel, of the bytes in the files, and whichever of equal classes a reader prefers."""
    task, volume = replace(models.TASK, window=window, mask_order=order), Volume(models.scan(1, shape), AFFINE)
    cut = segmenter(task, tta=tta)
    plain = cut.segment(volume).mask.voxels
    found = cut.segment(volume, probabilities=True)
    maps = np.stack([p.voxels for p in found.probabilities.values()])
    np.testing.assert_array_equal(found.mask.voxels, plain)
    np.testing.assert_array_equal(maps.argmax(axis=0), plain)
    np.testing.assert_array_equal(3 - maps[::-1].argmax(axis=0), plain)


def test_rounding_never_changes_the_winner_and_moves_no_probability_by_more_than_two_steps():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 0.01, (3, 5, 20, 20)).astype(np.float32)  # nearly equal: ties are the rule
    logits[0] *= 500
    logits[1, :, :10] = 0  # exactly equal: the first class wins
    logits[2, 1] = logits[2, 3] = 30  # two halves
    winner = logits.argmax(axis=1).astype(np.uint8)
    steps = in_steps(logits, winner)
    np.testing.assert_array_equal(steps.argmax(axis=1), winner)
    np.testing.assert_array_equal(4 - steps[:, ::-1].argmax(axis=1), winner)
    assert np.abs(steps / 255 - softmax(logits)).max() <= 2 / 255


def test_where_a_piece_was_removed_the_maps_still_say_what_the_network_saw():
    volume = Volume(SCAN, AFFINE)
    found = segmenter(largest=True).segment(volume, probabilities=True)
    maps = np.stack([p.voxels for p in found.probabilities.values()])
    np.testing.assert_array_equal(maps.argmax(axis=0), segmenter()(volume).voxels)
    assert (maps.argmax(axis=0) != found.mask.voxels).any()


def test_softmax_of_huge_logits():
    np.testing.assert_allclose(softmax(np.array([[[[1e5]], [[0.0]]]], np.float32)).ravel(), [1, 0])


def test_an_answer_that_is_not_finite_is_an_error():
    cut = segmenter()
    cut.engine = type("Broken", (), {"run": lambda self, s: np.full((len(s), 4, 32, 32), np.nan, np.float32)})()
    with pytest.raises(InputError, match="not finite; the run may be broken"):
        cut(Volume(SCAN, AFFINE))
    cut.model.facts["precision"] = "fp16"
    with pytest.raises(InputError, match="--precision fp32"):
        cut(Volume(SCAN, AFFINE))


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("seed", range(5))
def test_largest_piece_as_scipy_finds_it(seed, order):
    rng = np.random.default_rng(seed)
    mask = (rng.random((9, 11, 13)) < 0.45).astype(np.uint8) * rng.integers(1, 3, (9, 11, 13)).astype(np.uint8)
    mask[2:5, 2:6, 2:7] = 1  # one largest piece for certain, also where sizes could tie
    mask[6:9, 6:11, 6:12] = 2
    mask = np.array(mask, order=order)
    wanted = np.zeros_like(mask)
    for label in (1, 2):
        pieces, _ = ndimage.label(mask == label)
        wanted[pieces == np.bincount(pieces.ravel())[1:].argmax() + 1] = label
    keep_largest(mask)
    np.testing.assert_array_equal(mask, wanted)


def test_largest_piece_of_nothing_and_of_everything():
    for value in (0, 3):
        mask = np.full((4, 5, 6), value, np.uint8)
        keep_largest(mask)
        assert (mask == value).all()


def test_a_scan_unlike_training_is_told_and_another_modality_refused():
    seen = {"in-plane spacing": (1.2, 1.6), "slice spacing": (5.0, 10.0), "field of view": (40.0, 70.0)}
    task = replace(models.TASK, seen={**seen, "intensity span": (500.0, 2000.0)})
    assert training_differences(SliceStack(Volume(SCAN, AFFINE), task)) == []
    assert training_differences(SliceStack(Volume(SCAN, AFFINE), models.TASK)) == []
    words = " ".join(training_differences(SliceStack(Volume(SCAN, np.diag([0.4, 0.4, 0.5, 1])), task)))
    for part in ("in-plane spacing is 0.4 mm; in training it was 1.2 to 1.6", "field of view", "no thick slices"):
        assert part in words
    assert "intensity span" in training_differences(SliceStack(Volume((SCAN // 100).astype(np.int16), AFFINE), task))[0]
    normalised = replace(task, seen={**seen, "intensity span": (1.0, 1.0)})  # ACDC's h5 files
    assert training_differences(SliceStack(Volume(SCAN, AFFINE), normalised)) == []
    hounsfield = replace(models.TASK, intensity=Intensity("window", -200, 250))
    assert training_differences(SliceStack(Volume((SCAN - 500).astype(np.int16), AFFINE), hounsfield)) == []
    assert (
        "is it in HU?"
        in training_differences(SliceStack(Volume((SCAN + 1000).astype(np.int16), AFFINE), hounsfield))[0]
    )
    ct = Volume(SCAN, AFFINE, modality="CT")
    with pytest.raises(InputError, match="trained on MR"):
        check_modality(ct, task)
    check_modality(ct, task, force=True)
    check_modality(Volume(SCAN, AFFINE), task)


def test_batches_shrink_to_fit_max_ram_and_the_mask_stays_the_same():
    each, volume = 40_000_000, Volume(models.scan(1, (64, 64, 21)), AFFINE)
    free = segmenter()
    wanted = free(volume).voxels
    for room in (12, 3.5, 1.5):
        cut = segmenter()
        cut.engine = Greedy(cut.engine, each)
        cut.batch = 8
        cut.max_ram = int((resident() + room * each) / PLANNED)
        for _ in range(2):  # what the engine keeps from the first scan is not counted twice
            np.testing.assert_array_equal(cut(volume).voxels, wanted)
        assert cut.engine.largest == min(8, int(room))


def test_what_does_not_fit_max_ram_is_told_with_what_it_needs():
    cut = segmenter(max_ram=1000)
    with pytest.raises(TooLarge, match="can be used; allow that") as caught:
        cut(Volume(SCAN, AFFINE))
    assert caught.value.needed > resident() / 2


def test_sizes():
    sizes = {"2GB": 2 * 10**9, "800mb": 8 * 10**8, "1.5 GiB": 3 << 29, "2G": 2 * 10**9, "4096": 4096}
    assert {text: parse_size(text) for text in sizes} == sizes
    for text in ("", "much", "-2GB", "2 TB", "0", "1e9"):
        with pytest.raises(InputError, match="2GB or 800MB"):
            parse_size(text)
