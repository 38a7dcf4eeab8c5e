"""The order of patients: those that stand for many others that the network is unsure about."""

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


def test_one_that_stands_for_many_comes_before_the_farthest():
    """Four around 60 degrees; one alone at 180, the farthest from what is labelled."""
    first, second, *_ = choose(at(50, 60, 65, 70, 180), at(0), np.ones(5))
    assert first.index in (1, 2) and first.others == 4  # the one alone, too, is nearer to these than to 0
    assert (second.index, second.others) == (4, 0)


def test_a_twin_of_the_first_comes_last():
    assert order([80, 80, 40, 5], [0], [1, 1, 1, 1])[0] == 0 and order([80, 80, 40, 5], [0], [1, 1, 1, 1])[-1] == 1


def test_of_equally_many_the_uncertain_ones_count_more():
    assert order([90, -90], [0], [0.1, 0.2])[0] == 1


def test_labels_help_those_around_them_that_are_uncertain():
    """The two at 90 degrees are sure, the two at -90 are not."""
    assert order([85, 95, -85, -95], [0], [0.1, 0.1, 0.4, 0.4])[0] in (2, 3)


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
