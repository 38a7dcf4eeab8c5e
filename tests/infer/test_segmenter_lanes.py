"""A batch for each core: the mask, the probabilities and the confidence are those of one batch after another."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import models
from helpers.orientations import TURNS, restored

from mona_infer import Segmenter, Volume
from mona_infer.errors import InputError
from mona_infer.models.file import opened, seal
from mona_infer.segmenter import PLANNED
from mona_infer.system.memory_budget import resident

AFFINE = np.diag([1.5, 1.5, 8.0, 1.0])
WINDOWS = replace(models.TASK, long_side=96, window=(48, 40))
LOOKING = replace(WINDOWS, first_look=True, contrast=(1.0, 99.0), keep_largest=(1, 3), fill_holes=(2,))
TASKS = {"squeezed": models.TASK, "windows": WINDOWS, "first look": LOOKING}
SCAN = models.scan(0, (60, 50, 11))


def segmenter(task, threads, **options):
    return Segmenter(opened("model.onnx", models.model_bytes(task)), engine="cpu", threads=threads, **options)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("options", [{}, {"batch": 1}, {"batch": 3}, {"tta": True}], ids=str)
def test_as_many_lanes_as_threads_give_the_mask_of_one(name, options):
    def found(threads):
        told = []
        answer = segmenter(TASKS[name], threads, **options).segment(
            Volume(SCAN, AFFINE), confidence=True, probabilities=True, progress=lambda *done: told.append(done)
        )
        assert told == sorted(told) and told[-1] == (11, 11)
        return answer

    one = found(1)
    assert len(np.unique(one.mask.voxels)) > 2
    for threads in (2, 3):
        several = found(threads)
        np.testing.assert_array_equal(several.mask.voxels, one.mask.voxels)
        assert several.confidence == pytest.approx(one.confidence)
        for c, steps in one.probabilities.items():
            np.testing.assert_array_equal(several.probabilities[c].voxels, steps.voxels)


def test_two_lanes_give_one_mask_in_48_orders():
    cut = segmenter(LOOKING, 2)
    first = cut(Volume(SCAN, AFFINE)).voxels
    for axes, flips in TURNS:
        mask = cut(Volume(*restored(SCAN, AFFINE, axes, flips))).voxels
        np.testing.assert_array_equal(mask, restored(first, AFFINE, axes, flips)[0])


class Counting:
    """Another engine, and how many slices it was given at the same time at most."""

    description, lanes, batch = "counting", 2, 8

    def __init__(self, engine):
        self.engine, self.now, self.most, self.lock = engine, 0, 0, threading.Lock()

    def run(self, slices):
        with self.lock:
            self.now += len(slices)
            self.most = max(self.most, self.now)
        answer = self.engine.run(slices)
        with self.lock:
            self.now -= len(slices)
        return answer


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_all_lanes_together_hold_no_more_than_a_batch(task, batch):
    cut = segmenter(task, 1, batch=batch)
    wanted = cut(Volume(SCAN, AFFINE)).voxels
    cut.engine = counting = Counting(cut.engine)
    np.testing.assert_array_equal(cut(Volume(SCAN, AFFINE)).voxels, wanted)
    assert counting.most <= batch


def test_with_little_memory_there_is_one_lane():
    cut, each = segmenter(models.TASK, 2), 64 << 20
    wanted = cut(Volume(SCAN, AFFINE)).voxels
    cut.engine = counting = Counting(cut.engine)
    cut._workspace = each
    cut.max_ram = int((resident() + 1.5 * each) / PLANNED)
    np.testing.assert_array_equal(cut(Volume(SCAN, AFFINE)).voxels, wanted)
    assert counting.most == 1


def test_what_goes_wrong_in_a_lane_is_told():
    bias = np.array([0, np.inf, 0, 0], np.float32)
    content = seal(
        models.graph(models.TASK, bias).SerializeToString(),
        {"task": json.loads(models.TASK.to_json()), "precision": "fp32"},
    )
    with pytest.raises(InputError, match="not finite"):
        Segmenter(opened("model.onnx", content), engine="cpu", threads=2)(Volume(SCAN, AFFINE))
