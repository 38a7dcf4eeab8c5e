"""Entropy where organs are or may be, against values worked out by hand."""

import math

import numpy as np
import pytest

from mona_train.labelling.uncertainty import Uncertainty, uncertainty


def chances(*slices):
    """Slices of pixels of (background, first organ, second organ), in one row each."""
    return np.array(slices, np.float32).transpose(0, 2, 1)[:, :, None]


def entropy(*p):
    return -sum(x * math.log(x) for x in p if x) / math.log(3)


SURE, GUESS, OUT = (0, 1, 0), (1 / 3, 1 / 3, 1 / 3), (1, 0, 0)
BORDER = 0.6, 0.4, 0.0


def test_each_slice_counts_the_same_and_the_background_does_not():
    found = uncertainty(chances([SURE, SURE, SURE, BORDER], [OUT, OUT, OUT, BORDER], [OUT] * 4))
    border = entropy(*BORDER)
    assert found.slices[:2] == pytest.approx([border / 4, border])
    assert np.isnan(found.slices[2])
    assert found.overall == pytest.approx((border / 4 + border) / 2)


def test_an_organ_is_measured_where_it_is_the_likeliest_even_if_it_does_not_win():
    found = uncertainty(chances([(0.6, 0.1, 0.3), (0.1, 0.9, 0), OUT]))
    assert found.organs[0] == pytest.approx([entropy(0.1, 0.9, 0), entropy(0.6, 0.1, 0.3)])
    assert found.found.tolist() == [True, False]


def test_the_ends_of_the_scale():
    assert uncertainty(chances([SURE] * 2)).overall == pytest.approx(0)
    assert uncertainty(chances([GUESS] * 2)).overall == pytest.approx(1)
    assert uncertainty(chances([OUT] * 2)).overall == 1  # no organ found at all


def test_parts_of_a_scan_are_joined():
    scan = chances([SURE, BORDER], [OUT, GUESS], [OUT, OUT])
    whole, joined = uncertainty(scan), Uncertainty.joined([uncertainty(scan[:1]), uncertainty(scan[1:])])
    for name in ("slices", "organs", "found"):
        assert np.array_equal(getattr(whole, name), getattr(joined, name), equal_nan=name != "found")
