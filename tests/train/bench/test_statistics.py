"""The paired bootstrap against closed forms, scipy and its own promise: 95 % of the intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mona_infer.errors import InputError
from mona_train.bench.statistics import Difference, paired_bootstrap, rank_correlation, ranks


def scores(values: list[float]) -> tuple[dict[str, float], dict[str, str]]:
    """One case for each patient."""
    cases = {f"p{n}": value for n, value in enumerate(values)}
    return cases, {case: case for case in cases}


def test_a_constant_difference_has_an_interval_of_no_width() -> None:
    theirs, patients = scores([0.7, 0.85, 0.9, 0.3])
    found = paired_bootstrap({case: dsc + 0.02 for case, dsc in theirs.items()}, theirs, patients)
    assert found.mean == pytest.approx(0.02)
    assert found.high - found.low == pytest.approx(0, abs=1e-12)
    assert found.verdict == "better"
    assert paired_bootstrap(theirs, theirs, patients).verdict == "not distinguishable"


def test_the_mean_and_the_width_are_those_of_the_t_interval_where_differences_are_normal() -> None:
    difference = np.random.default_rng(3).normal(0.01, 0.02, 12)
    ours, patients = scores(list(0.8 + difference))
    theirs, _ = scores([0.8] * 12)
    found = paired_bootstrap(ours, theirs, patients)
    t = stats.t.interval(0.95, 11, difference.mean(), stats.sem(difference))
    assert found.mean == pytest.approx(difference.mean())
    assert found.high - found.low == pytest.approx(t[1] - t[0], rel=0.08)


def test_percentiles_without_the_correction_are_scipys() -> None:
    """For very many patients the correction vanishes, and what is left is the percentile bootstrap."""
    difference = np.random.default_rng(4).exponential(0.02, 400)
    ours, patients = scores(list(difference))
    found = paired_bootstrap(ours, dict.fromkeys(ours, 0.0), patients)
    rng = np.random.default_rng(0)
    theirs = stats.bootstrap((difference,), np.mean, n_resamples=4000, method="percentile", rng=rng)
    assert found.low == pytest.approx(theirs.confidence_interval.low, rel=0.02)
    assert found.high == pytest.approx(theirs.confidence_interval.high, rel=0.02)


def test_ninety_five_percent_of_the_intervals_of_ten_patients_hold_the_true_difference() -> None:
    rng, held, trials = np.random.default_rng(5), 0, 1000
    for trial in range(trials):
        ours, patients = scores(list(rng.normal(0.01, 0.02, 10)))
        found = paired_bootstrap(ours, dict.fromkeys(ours, 0.0), patients, draws=1000, seed=trial)
        held += found.low <= 0.01 <= found.high
    assert 0.93 <= held / trials <= 0.97  # 0.90 without the correction for few patients


def test_pairing_matters() -> None:
    """The same two methods: what all patients share cancels only where the pairs are kept."""
    hard = np.random.default_rng(6).normal(0, 0.08, 20)
    ours, patients = scores(list(0.85 + hard))
    theirs, _ = scores(list(0.83 + hard + np.random.default_rng(7).normal(0, 0.004, 20)))
    shuffled = dict(zip(theirs, np.roll(list(theirs.values()), 1), strict=True))
    paired, unpaired = paired_bootstrap(ours, theirs, patients), paired_bootstrap(ours, shuffled, patients)
    assert paired.mean == pytest.approx(unpaired.mean)
    assert (paired.verdict, unpaired.verdict) == ("better", "not distinguishable")
    assert paired.high - paired.low < 0.1 * (unpaired.high - unpaired.low)


def test_frames_of_a_patient_are_drawn_together() -> None:
    """A second frame that says the same again is no further evidence, and no patient counts twice for having two."""
    values = list(np.random.default_rng(8).normal(0.01, 0.02, 10))
    once, patients = scores(values)
    twice = {f"{case}_{frame}": dsc for case, dsc in once.items() for frame in "ab"}
    owners = {case: case[:-2] for case in twice}
    one = paired_bootstrap(once, dict.fromkeys(once, 0.0), patients)
    two = paired_bootstrap(twice, dict.fromkeys(twice, 0.0), owners)
    assert (two.patients, two.cases) == (10, 20)
    assert (two.low, two.high) == pytest.approx((one.low, one.high))
    apart = paired_bootstrap(twice, dict.fromkeys(twice, 0.0), {case: case for case in twice})
    assert apart.high - apart.low < 0.8 * (two.high - two.low)


def test_the_same_rows_give_the_same_interval() -> None:
    ours, patients = scores([0.9, 0.8, 0.85, 0.7, 0.95])
    theirs, _ = scores([0.88, 0.82, 0.8, 0.7, 0.9])
    first = paired_bootstrap(ours, theirs, patients)
    again = paired_bootstrap(dict(reversed(ours.items())), theirs, patients)
    assert first == again
    back = paired_bootstrap(theirs, ours, patients)
    assert (back.low, back.high) == pytest.approx((-first.high, -first.low), abs=2e-3)


def test_one_patient_has_no_interval_and_other_cases_are_refused() -> None:
    found = paired_bootstrap({"a": 0.9, "b": 0.8}, {"a": 0.8, "b": 0.8}, {"a": "p", "b": "p"})
    assert found == Difference(pytest.approx(0.05), pytest.approx(0.05), pytest.approx(0.05), 1, 2)
    assert found.verdict == "one patient"
    with pytest.raises(InputError, match="same cases only, found 2 and 1, of which 1 are in both"):
        paired_bootstrap({"a": 0.9, "b": 0.8}, {"a": 0.8}, {"a": "p", "b": "p"})


def test_ranks_share_ties_and_their_correlation_is_spearmans() -> None:
    assert ranks([0.5, 0.9, 0.7, 0.7]) == [4, 1, 2.5, 2.5]
    assert rank_correlation([1, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [8, 6, 4, 2]) == pytest.approx(-1)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
