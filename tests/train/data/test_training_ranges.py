"""What a training set looked like: the ranges that travel with the model."""

from dataclasses import replace

from helpers.small_runs import TASK, small_cache

from mona_train.data.training_ranges import training_ranges


def test_what_training_saw(tmp_path):
    found = training_ranges(small_cache())
    assert found["slice spacing"] == (8.0, 8.0)
    assert found["in-plane spacing"] == (1.0, 1.0)
    assert replace(TASK, seen=found) == type(TASK).from_json(replace(TASK, seen=found).to_json())
