"""What is said of a patient, for every case there is."""

import numpy as np
import pytest

from mona_train.labelling.reasons import Reasons
from mona_train.labelling.uncertainty import Uncertainty


def scan(rv, lv, found=(True, True)):
    organs = np.array([rv, lv], float).T
    return Uncertainty(organs.mean(axis=1), organs, np.array(found))


CALM, WILD = scan([0.1] * 4, [0.1] * 4), scan([0.8, 0.8, 0.1, np.nan], [0.1] * 4)
REASONS = Reasons(["RV", "LV"], [CALM, CALM, CALM, WILD], [0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.parametrize(
    ("scans", "words"),
    [
        ([CALM], "the network is fairly sure"),
        ([WILD], "the network is unsure about the RV in 2 of 4 slices"),
        ([CALM, WILD], "the network is unsure about the RV in 2 of 8 slices"),
        ([scan([np.nan], [0.9], (False, True))], "the network finds no RV"),
        ([scan([np.nan], [np.nan], (False, False))], "the network finds nothing"),
    ],
)
def test_what_the_network_is_unsure_of(scans, words):
    assert REASONS.of(scans, 0.1, "p1", 0, None).partition(";")[0] == words


@pytest.mark.parametrize(
    ("distance", "above", "words"),
    [
        (0.5, None, "unlike any labelled patient"),
        (0.4, "p7", "not much like any labelled patient (p1 is nearest), but like p7 above"),
        (0.1, None, "like the labelled patient p1"),
    ],
)
def test_what_it_is_like(distance, above, words):
    assert REASONS.of([CALM], distance, "p1", 0, above).partition("; ")[2] == words


@pytest.mark.parametrize(
    ("others", "words"),
    [(1, "1 other patient without a label is like it"), (12, "12 other patients without a label are like it")],
)
def test_whom_it_stands_for(others, words):
    assert REASONS.of([CALM], 0.1, "p1", others, None).endswith(f"; {words}")
