"""Several batches at the same time: none is left out, their answers come in order, and they are those of one lane."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from helpers import models
from hypothesis import given
from hypothesis import strategies as st

from mona_infer.engines import onnx
from mona_infer.engines.base import in_batches, lanes_of
from mona_infer.engines.lanes import in_order, spans
from mona_infer.engines.onnx import OnnxEngine
from mona_infer.models.file import opened
from mona_kernels import native


@given(count=st.integers(1, 200), most=st.integers(1, 20), lanes=st.integers(1, 5))
def test_batches_cover_everything_and_lanes_end_together(count, most, lanes):
    found = spans(count, most, lanes)
    assert found[0][0] == 0 and found[-1][1] == count
    assert all(stop == start for (_, stop), (start, _) in pairwise(found))
    sizes = [stop - start for start, stop in found]
    assert max(sizes) <= most and len(set(sizes[:-1])) <= 1
    assert -(-len(found) // lanes) == -(-count // (most * lanes))  # no more rounds than there must be


def test_ten_slices_on_two_lanes_are_five_and_five():
    assert spans(10, 7, 2) == [(0, 5), (5, 10)]


def test_results_come_in_order_and_few_are_under_way():
    active, most, lock = 0, 0, threading.Lock()

    def call(n):
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        time.sleep(0.01 if n % 3 else 0.03)
        with lock:
            active -= 1
        return n

    taken = iter(range(20))
    results = in_order(call, taken, 2)
    assert next(results) == 0
    assert next(taken) <= 4  # the rest is asked for as it is needed
    assert list(results) == [1, 2, *range(4, 20)]
    assert most == 2


def test_an_error_stops_the_rest():
    asked = []

    def call(n):
        asked.append(n)
        if n == 1:
            raise ValueError("no")
        return n

    with pytest.raises(ValueError, match="no"):
        list(in_order(call, range(100), 2))
    assert max(asked) < 8


def test_threads_of_a_lane_start_no_others(monkeypatch):
    assert native._count(0) == native.cores()
    assert list(in_order(lambda _: (native._count(0), native._count(3)), range(2), 2)) == [(1, 3)] * 2
    assert native._count(0) == native.cores()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [0, 1, 2, 5])
def test_lanes_give_the_answers_of_one(threads, batch):
    model = opened("model.onnx", models.model_bytes())
    slices = np.random.default_rng(0).random((11, models.SIDE, models.SIDE), np.float32)
    engine = OnnxEngine(model, threads=threads)
    assert engine.lanes == (threads if threads <= onnx.LANES else 1)
    assert lanes_of(engine, 1) == 1  # one slice at a time is one slice at a time
    wanted = OnnxEngine(model, threads=1).run(slices)
    found = list(in_batches(engine, slices, batch))
    assert [start for start, _ in found] == list(np.cumsum([0, *(len(answer) for _, answer in found)]))[:-1]
    np.testing.assert_array_equal(np.concatenate([answer for _, answer in found]), wanted)
