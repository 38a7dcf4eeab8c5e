"""The order of patients: far from the labelled ones and those above, and uncertain; only ranks matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mona_train.labelling.choose import choose


def at(*degrees):
    """Points on the circle."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def order(candidates, labelled, uncertain):
    return [pick.index for pick in choose(at(*candidates), at(*labelled), np.array(uncertain, float))]


def test_the_farthest_is_first_and_its_twin_last():
    assert order([80, 81, 40, 5], [0], [1, 1, 1, 1]) == [1, 2, 3, 0]


def test_of_equally_far_ones_the_most_uncertain_is_first():
    assert order([90, -90, 90, -90], [0], [0.1, 0.2, 0.4, 0.3])[0] == 2


def test_a_pick_names_its_nearest_labelled_patient_and_the_one_above_that_is_nearer():
    first, second, third = choose(at(90, 85, 10), at(0, 180), np.ones(3))
    assert (first.index, first.nearest, first.above) == (0, 0, None)
    assert first.distance == pytest.approx(np.sqrt(2))
    assert (second.index, second.nearest, second.above) == (2, 0, None)
    assert (third.index, third.above) == (1, 0)


@given(seed=st.integers(0, 2**16), scale=st.floats(1e-3, 1e3))
def test_every_candidate_once_and_the_scale_of_uncertainty_does_not_matter(seed, scale):
    draws = np.random.default_rng(seed)
    points = draws.normal(size=(9, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    uncertain = draws.integers(1, 5, 6) / 4
    found = [pick.index for pick in choose(points[:6], points[6:], uncertain)]
    assert sorted(found) == list(range(6))
    assert found == [pick.index for pick in choose(points[:6], points[6:], scale * uncertain)]
