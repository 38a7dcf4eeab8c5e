"""The two definitions, their empty-mask rules, and the summary over cases."""

import numpy as np
import pytest

from mona_infer.evaluation.metrics import Score, score_case, summarise

EMPTY = np.zeros((4, 6, 6), np.uint8)
FULL = EMPTY.copy()
FULL[1:3, 2:4, 2:4] = 1
SPACING = (10.0, 1.5, 1.5)


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        (EMPTY, EMPTY, Score(1.0, 1.0, nsd=1.0)),
        (EMPTY, FULL, Score(0.0, 0.0, nsd=0.0, sensitivity=0.0, miss=True)),
        (FULL, EMPTY, Score(0.0, 0.0, nsd=0.0, precision=0.0, miss=True)),
    ],
)
def test_sound_never_drops_or_rewards_a_miss(prediction, reference, expected):
    assert score_case(prediction, reference, SPACING, [1])[1] == expected


@pytest.mark.parametrize(
    ("prediction", "reference", "dsc"), [(EMPTY, EMPTY, 0.0), (EMPTY, FULL, 0.0), (FULL, EMPTY, 1.0)]
)
def test_paper_repeats_the_published_rules(prediction, reference, dsc):
    score = score_case(prediction, reference, SPACING, [1], definition="paper")[1]
    assert (score.dsc, score.jaccard, score.nsd) == (dsc, dsc, dsc)
    assert (score.asd, score.assd, score.hd95, score.hd) == (0.0, 0.0, 0.0, 0.0)
    assert score.sensitivity == (0.0 if reference.any() else None)
    assert score.precision == (0.0 if prediction.any() else None)
    assert not score.miss


def test_paper_measures_in_voxels_and_sound_in_millimetres():
    moved = np.roll(FULL, 1, axis=0)
    assert score_case(moved, FULL, SPACING)[1].hd95 == pytest.approx(10.0)
    assert score_case(moved, FULL, SPACING, definition="paper")[1].hd95 == pytest.approx(1.0)


def test_surface_dice_and_hausdorff_of_a_mask_moved_by_one_voxel():
    """A box of 2x2x2 voxels is all border: moved by one along its first axis, half of it lies on the other."""
    moved = np.roll(FULL, 1, axis=0)
    score = score_case(moved, FULL, SPACING)[1]
    assert (score.hd, score.nsd, score.sensitivity, score.precision) == (10.0, 0.5, 0.5, 0.5)
    assert score_case(moved, FULL, SPACING, tolerance=10.0)[1].nsd == 1.0  # at the tolerance is within it
    assert score_case(moved, FULL, SPACING, tolerance=9.99)[1].nsd == 0.5
    assert score_case(moved, FULL, SPACING, tolerance=0.0)[1].nsd == 0.5
    assert score_case(moved, FULL, SPACING, definition="paper", tolerance=1.0)[1].nsd == 1.0  # voxels there


def test_a_spacing_rounded_to_32_bits_decides_nothing():
    spacing = (float(np.float32(0.8)),) * 3
    moved = np.roll(FULL, 2, axis=0)
    assert spacing[0] * 2 > 1.6
    assert score_case(moved, FULL, spacing, tolerance=1.6)[1].nsd == 1.0


def test_sensitivity_is_of_the_reference_and_precision_of_the_prediction():
    half = FULL.copy()
    half[1] = 0
    score = score_case(half, FULL, SPACING)[1]
    assert (score.sensitivity, score.precision) == (0.5, 1.0)
    score = score_case(FULL, half, SPACING)[1]
    assert (score.sensitivity, score.precision) == (1.0, 0.5)


def test_a_mean_leaves_out_shares_of_nothing():
    half = FULL.copy()
    half[1] = 0
    scores = [score_case(*pair, SPACING, [1]) for pair in ((half, FULL), (FULL, EMPTY), (EMPTY, FULL))]
    mean = summarise(scores, [100.0] * 3)
    assert mean["sensitivity"] == pytest.approx((0.5 + 0) / 2)  # the case without reference has none
    assert mean["precision"] == pytest.approx((1 + 0) / 2)
    assert mean["nsd"] == pytest.approx(scores[0][1].nsd / 3)  # misses are 0
    assert mean["hd"] == pytest.approx((10 + 100 + 100) / 3)  # and charged the diagonal


def test_asd_is_directed_and_assd_is_not():
    small = EMPTY.copy()
    small[1, 2, 2] = 1
    assert score_case(small, FULL, SPACING)[1].asd == 0
    assert score_case(FULL, small, SPACING)[1].asd > 0
    assert score_case(small, FULL, SPACING)[1].assd == score_case(FULL, small, SPACING)[1].assd


def test_a_miss_is_charged_the_diagonal_and_counted():
    good, miss, absent = Score(0.8, 0.7, 1.0, 2.0, 3.0), Score(0.0, 0.0, miss=True), Score(1.0, 1.0)
    mean = summarise([{1: good}, {1: miss}, {1: absent}], [100.0, 200.0, 300.0])
    assert mean["dsc"] == pytest.approx((0.8 + 0 + 1) / 3)
    assert mean["assd"] == pytest.approx((2.0 + 200.0) / 2)  # the case without the class has no distance
    assert mean["scored"]["assd"] == pytest.approx(2.0)
    assert mean["miss_rate"] == pytest.approx(1 / 2)
    assert mean["classes"]["1"]["hd95"] == pytest.approx((3.0 + 200.0) / 2)


def test_missing_more_never_improves_a_mean():
    good, miss = Score(0.8, 0.7, 1.0, 2.0, 3.0), Score(0.0, 0.0, miss=True)
    cases = [{1: good}] * 5
    for n in range(1, 6):
        worse = [{1: miss}] * n + cases[n:]
        before = summarise([{1: miss}] * (n - 1) + cases[n - 1 :], [150.0] * 5)
        after = summarise(worse, [150.0] * 5)
        assert after["dsc"] < before["dsc"]
        assert after["assd"] > before["assd"]


def test_the_mean_over_classes_is_that_of_the_class_means():
    a, b = Score(0.9, 0.8, 1.0, 1.0, 1.0), Score(0.5, 0.4, 3.0, 3.0, 3.0)
    mean = summarise([{1: a, 2: b}, {1: a, 2: Score(1.0, 1.0)}], [10.0, 10.0])
    assert mean["assd"] == pytest.approx((1.0 + 3.0) / 2)
    assert mean["dsc"] == pytest.approx((0.9 + 0.75) / 2)


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    """Over 200 samples of 40 normal cases the 95 % interval of the mean covers the true mean 88..99 % of the time."""
    rng, covered = np.random.default_rng(0), 0
    for n in range(200):
        values = rng.normal(0.8, 0.05, 40)
        low, high = summarise([{1: Score(v, v)} for v in values], [1.0] * 40, seed=n)["ci95"]["dsc"]
        covered += low <= 0.8 <= high
    assert 176 <= covered <= 198


def test_intervals_are_repeatable_and_absent_for_one_case():
    cases = [{1: Score(v, v)} for v in (0.1, 0.5, 0.9)]
    assert summarise(cases, [1.0] * 3) == summarise(cases, [1.0] * 3)
    assert summarise(cases[:1], [1.0])["ci95"] is None


def test_the_bootstrap_resamples_patients_not_their_frames():
    """Every case twice: as 20 patients the interval narrows by root 2, as frames of 10 patients it must not."""
    values = np.random.default_rng(0).normal(0.8, 0.05, 10)
    cases, names = [{1: Score(v, v)} for v in values for _ in range(2)], [f"p{n}" for n in range(10) for _ in range(2)]

    def width(patients, scores=cases):
        low, high = summarise(scores, [1.0] * len(scores), patients)["ci95"]["dsc"]
        return high - low

    assert width(names) == pytest.approx(width(None, cases[::2]), rel=0.1)
    assert width(None) == pytest.approx(width(names) / np.sqrt(2), rel=0.1)
    assert summarise(cases[:2], [1.0] * 2, names[:2])["ci95"] is None
