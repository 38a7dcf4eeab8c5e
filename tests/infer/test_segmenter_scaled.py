"""`Segmenter` with Tasks that have a scale: windows, the first look, post-processing, memory."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import models
from helpers.greedy_engine import Greedy
from helpers.orientations import TURNS, restored, rotation
from scipy.ndimage import maximum_filter, minimum_filter

from mona_infer import Segmenter, Volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.models.file import opened
from mona_infer.segmenter import PLANNED
from mona_infer.segmenting.first_look import NOTHING, UNCERTAIN
from mona_infer.system.memory_budget import TooLarge, resident

AFFINE = np.diag([1.5, 1.5, 8.0, 1.0])
WINDOWS = replace(models.TASK, long_side=96, window=(48, 40))
LOOKING = replace(WINDOWS, first_look=True)
SPACED = replace(models.TASK, spacing=1.7, window=(48, 40), first_look=True)
TASKS = [WINDOWS, LOOKING, SPACED]
IDS = ["windows", "first look", "spacing"]


def segmenter(task, **options):
    return Segmenter(opened("model.onnx", models.model_bytes(task)), engine="cpu", threads=1, **options)


def heart(shape=(120, 100, 9), at=(70, 20, 3)):
    """A bright block with a darker core on black."""
    voxels = np.zeros(shape, np.int16)
    i, j, k = at
    voxels[i : i + 30, j : j + 30, k : k + 4] = 1000
    voxels[i + 8 : i + 16, j + 10 : j + 18, k + 1 : k + 3] = 600
    return voxels


def bands(voxels):
    return np.minimum(voxels // 250, 3)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
@pytest.mark.parametrize("at", [(70, 20, 3), (0, 0, 0), (90, 70, 5), (45, 35, 2)], ids=str)
def test_the_mask_is_that_of_the_network_wherever_the_organ_is(task, at):
    voxels = heart(at=at)
    found = segmenter(task).segment(Volume(voxels, AFFINE))
    assert not found.warnings
    wanted = bands(voxels)
    clear = maximum_filter(wanted, (5, 5, 1)) == minimum_filter(wanted, (5, 5, 1))  # edges are resampled
    np.testing.assert_array_equal(found.mask.voxels[clear], wanted[clear])
    assert (found.box is None) == (not task.first_look)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_one_anatomy_stored_in_48_orders_gives_one_mask(task):
    affine = np.eye(4)
    affine[:3, :3] = rotation(10, -20, 30) @ np.diag([1.5, 1.5, 8.0])
    cut, voxels = segmenter(task), heart((60, 50, 6), (25, 15, 1))
    first = cut(Volume(voxels, affine)).voxels
    assert len(np.unique(first)) > 2
    for axes, flips in TURNS:
        mask = cut(Volume(*restored(voxels, affine, axes, flips))).voxels
        np.testing.assert_array_equal(mask, restored(first, affine, axes, flips)[0])


@pytest.mark.parametrize("made_up", [False, True], ids=["real", "made up"])
def test_portrait_in_48_orders_gives_one_mask(made_up):
    task = replace(LOOKING, orientation="portrait", fill_holes=(2,), keep_largest=(3,))
    affine = np.diag([1.5, 1.5, 8.0, 1.0]) if made_up else np.diag([-1.5, -1.5, 8.0, 1.0])
    cut, voxels = segmenter(task), heart((60, 50, 6), (25, 15, 1))
    found = cut.segment(Volume(voxels, affine))
    assert found.stack.native_size == (60, 50)
    for axes, flips in TURNS:
        mask = cut(Volume(*restored(voxels, affine, axes, flips))).voxels
        np.testing.assert_array_equal(mask, restored(found.mask.voxels, affine, axes, flips)[0])


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_batches_of_any_size_give_the_same(task, batch):
    """Also those that one slice's windows do not fit into."""
    volume, cut = Volume(heart(), AFFINE), segmenter(task, batch=batch)
    given, run = [], cut.engine.run
    cut.engine.run = lambda slices: given.append(len(slices)) or run(slices)
    told = []
    mask = cut.segment(volume, progress=lambda done, of: told.append((done, of))).mask
    np.testing.assert_array_equal(mask.voxels, segmenter(task, batch=4)(volume).voxels)
    assert max(given) <= batch
    assert sum(given) == 9 * (6 if task is WINDOWS else 1)
    assert told[-1] == (9, 9)
    assert told == sorted(told)


@pytest.mark.parametrize("tta", [False, True], ids=["plain", "tta"])
@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_the_largest_probability_is_that_of_the_masks_class(task, tta):
    cut, volume = segmenter(task, tta=tta), Volume(heart(), AFFINE)
    plain = cut.segment(volume).mask.voxels
    found = cut.segment(volume, probabilities=True, confidence=True)
    maps = np.stack([p.voxels for p in found.probabilities.values()])
    np.testing.assert_array_equal(found.mask.voxels, plain)
    np.testing.assert_array_equal(maps.argmax(axis=0), plain)
    np.testing.assert_array_equal(3 - maps[::-1].argmax(axis=0), plain)
    np.testing.assert_allclose(maps.sum(axis=0, dtype=int), 255, atol=3)
    assert all(0.25 < sure <= 1 for name, sure in found.confidence.items() if name in ("background", "LV", "Myo"))


def test_confidence_is_not_about_zeros_around_the_scan():
    """A scan that is bright everywhere, smaller than the window: the black around it is not part of the scan."""
    task = replace(models.TASK, spacing=1.5, window=(64, 64))
    volume = Volume(np.full((20, 24, 3), 1000, np.int16), AFFINE)
    volume.voxels[:2] = 0  # so that its range is not empty
    black = segmenter(task).segment(volume, confidence=True).confidence
    weight, bias = models.bands()
    sure = [np.exp(v * weight + bias).max() / np.exp(v * weight + bias).sum() for v in (0.0, 1.0)]
    assert black["background"] == pytest.approx(sure[0], rel=1e-3)
    assert black["LV"] == pytest.approx(sure[1], rel=1e-3)


def test_without_an_organ_the_window_is_at_the_centre_and_the_user_is_told():
    found = segmenter(LOOKING).segment(Volume(np.full((120, 100, 9), 7, np.int16), AFFINE))
    assert found.warnings == (NOTHING,)
    assert found.box is None
    assert found.stack.frame == (80, 96)
    assert found.stack.windows == ((16, 28),)


def test_the_user_is_told_of_a_look_less_certain_than_in_training():
    """How certain the bright block's network is depends on the blocks' brightness alone."""
    volume = Volume(heart(), AFFINE)
    told = {
        least: segmenter(replace(LOOKING, least_certain=least)).segment(volume).warnings for least in (0.0, 0.5, 1.0)
    }
    assert told == {0.0: (), 0.5: (), 1.0: (UNCERTAIN,)}
    nothing = Volume(np.full((120, 100, 9), 7, np.int16), AFFINE)
    assert segmenter(replace(LOOKING, least_certain=1.0)).segment(nothing).warnings == (NOTHING,)  # one is enough


def test_an_organ_larger_than_the_window_is_seen_by_several():
    voxels = heart()
    voxels[20:110, 10:90, 2:7] = 1000
    found = segmenter(LOOKING).segment(Volume(voxels, AFFINE))
    assert len(found.stack.windows) == 6
    assert (found.mask.voxels != bands(voxels)).mean() < 5e-3


def test_a_given_engine_takes_the_first_look():
    class Corner:
        description, batch = "corner", 8

        def run(self, slices):
            logits = np.zeros((len(slices), 2, 64, 64), np.float32)
            logits[:, 1, :20, :20] = 1
            return logits

    cut = segmenter(LOOKING, first_look=Corner())
    found = cut.segment(Volume(heart(), AFFINE))
    assert found.stack.windows == ((0, 0),)
    with_task = Segmenter(LOOKING, engine=cut.engine, first_look=Corner())
    assert with_task.segment(Volume(heart(), AFFINE)).box == found.box
    ready = Segmenter(opened("model.onnx", models.model_bytes(LOOKING)), engine=cut.engine)
    assert ready.segment(Volume(heart(), AFFINE)).box != found.box
    with pytest.raises(TypeError, match="needs a first look"):
        Segmenter(LOOKING, engine=cut.engine)


def test_the_tasks_largest_pieces_and_holes():
    voxels = heart()
    voxels[78:86, 30:38, 4:6] = 0  # a hole in class 3 in two slices
    voxels[10:14, 80:84, 4] = 1000  # another piece of class 3
    voxels[20:24, 80:84, 4] = 600  # and the only one of class 2
    volume = Volume(voxels, AFFINE)
    plain = segmenter(WINDOWS)(volume).voxels
    found = segmenter(replace(WINDOWS, keep_largest=(3,), fill_holes=(3,)))(volume).voxels
    assert plain[12, 82, 4] == 3
    assert found[12, 82, 4] == 0
    assert found[22, 82, 4] == plain[22, 82, 4] == 2
    assert (plain[80:84, 32:36, 4:6] == 0).all()
    assert (found[80:84, 32:36, 4:6] == 3).all()
    every = segmenter(replace(WINDOWS, keep_largest=(3,)), largest=True)(volume).voxels
    assert (every == 3).sum() == (plain == 3).sum() - (plain[:40] == 3).sum()


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_batches_shrink_to_fit_max_ram_and_the_mask_stays_the_same(task):
    each, volume = 40_000_000, Volume(heart(), AFFINE)
    wanted = segmenter(task)(volume).voxels
    for room in (12, 3.5, 1.5):
        cut = segmenter(task)
        cut.engine = Greedy(cut.engine, each)
        cut.batch = 8
        cut.max_ram = int((resident() + room * each) / PLANNED)
        for _ in range(2):  # what the engine keeps from the first scan is not counted twice
            np.testing.assert_array_equal(cut(volume).voxels, wanted)
        assert cut.engine.largest == min(6 if task is WINDOWS else 8, int(room))  # the six windows of a slice


def test_what_does_not_fit_max_ram_is_told_with_what_it_needs():
    with pytest.raises(TooLarge, match="can be used; allow that"):
        segmenter(LOOKING, max_ram=1000)(Volume(heart(), AFFINE))


def test_squeezed_tasks_are_not_looked_at_first(monkeypatch):
    """Nothing of what is new touches them: the bits are those of reading, network and restoring by hand."""
    cut, volume = segmenter(models.TASK), Volume(models.scan(), AFFINE)
    stack = SliceStack(volume, cut.task)
    wanted = stack.empty_mask()
    for start, slices in stack.batches(3):
        stack.restore(wanted, start, cut.engine.run(slices))
    found = cut.segment(volume)
    assert cut.first_look is None
    assert (found.box, found.warnings) == (None, ())
    np.testing.assert_array_equal(found.mask.voxels, wanted)
