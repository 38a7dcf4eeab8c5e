"""A window holds all labelled foreground with room around it, and no more than it must; so does one around an organ."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.caches import cache_of, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_infer.task import centred
from mona_train.data.window import centred_window, organ_window


def cache_with(size, *pixels):
    """Six labelled slices, and three before them that are not: each pixel is (image row, class, row, column)."""
    labels = np.zeros((6, *size), np.uint8)
    for row, kind, y, x in pixels:
        labels[row - 3, y, x] = kind
    entries = [replace(case, first_label=None if case.first == 0 else case.first - 3) for case in cases(3, 1, slices=3)]
    return replace(cache_of(entries), labels=labels)


ROWS = range(3, 9)


@pytest.mark.parametrize(
    ("size", "pixel", "expected"),
    [
        ((128, 128), (63, 105), (96, 96)),  # ACDC at 5 %: 41.5 / 64 + 0.1 = 0.748, and 0.748 * 128 = 95.8
        ((128, 128), (63, 106), (112, 112)),  # one further: 97.8
        ((128, 128), (63, 22), (96, 96)),  # the same to the left, above and below
        ((128, 128), (22, 63), (96, 96)),
        ((128, 128), (105, 64), (96, 96)),
        ((128, 128), (21, 64), (112, 112)),
        ((128, 128), (63, 64), (16, 16)),  # 0.008 + 0.1
        ((128, 128), (0, 64), (128, 128)),  # 0.992 + 0.1 is more than there is
        ((128, 64), (63, 52), (96, 48)),  # 20.5 / 32 + 0.1 = 0.741 of either side: 94.8 and 47.4
        ((64, 128), (52, 63), (48, 96)),
        ((100, 100), (49, 91), (96, 96)),  # 0.83 + 0.1: 93
        ((100, 100), (49, 93), (100, 100)),  # 0.87 + 0.1: 97, and 112 is more than there is
        ((33, 41), (16, 20), (16, 16)),  # the very centre of odd sides: 3.3 and 4.1
    ],
)
def test_the_share_of_both_sides(size, pixel, expected):
    assert centred_window(cache_with(size, (4, 2, *pixel)), ROWS) == expected


def test_every_class_of_every_given_row_counts_and_no_other():
    cache = cache_with((128, 128), (3, 1, 63, 64), (5, 3, 63, 80), (8, 2, 20, 64))
    assert centred_window(cache, [3]) == (16, 16)
    assert centred_window(cache, [5]) == (48, 48)  # 16.5 / 64 + 0.1 = 0.358
    assert centred_window(cache, (3, 4, 5)) == (48, 48)
    assert centred_window(cache, ROWS) == (112, 112)  # 43.5 / 64 + 0.1 = 0.78


def test_without_foreground_it_is_all_there_is():
    cache = cache_with((33, 128), (8, 1, 0, 0))
    assert centred_window(cache, range(3, 8)) == (33, 128)
    assert centred_window(cache, []) == (33, 128)


def test_a_row_without_a_label_is_refused():
    with pytest.raises(ValueError, match="row 2 has no label"):
        centred_window(cache_with((16, 16)), [3, 2])


@pytest.mark.parametrize("wrong", [{"margin": -0.1}, {"multiple": 0}], ids=str)
def test_a_margin_or_multiple_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="margin"):
        centred_window(cache_with((16, 16)), ROWS, **wrong)


def test_rounding_in_the_last_bit_does_not_cost_a_step():
    """0.1 + 1 / 20 of 20 is 3, not 3.0000000000000004."""
    assert centred_window(cache_with((20, 20), (3, 1, 9, 10)), ROWS, multiple=1) == (3, 3)


SIDES = st.integers(1, 70)


@settings(max_examples=200, deadline=None)
@given(SIDES, SIDES, st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([1, 2, 5, 16]), st.data())
def test_all_foreground_is_inside_and_the_next_smaller_would_not_do(rows, columns, margin, multiple, data):
    spots = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    pixels = data.draw(st.lists(spots, min_size=1, max_size=4))
    cache = cache_with((rows, columns), *((5, 1, y, x) for y, x in pixels))
    window = centred_window(cache, ROWS, margin=margin, multiple=multiple)

    def holds(sizes):
        return cache.labels[:, *centred((rows, columns), sizes)].sum() == cache.labels.sum()

    assert holds(window)
    reach = [
        abs(p - (side - 1) / 2) / (side / 2) for spot in pixels for p, side in zip(spot, (rows, columns), strict=True)
    ]
    share = max(reach) + margin
    for axis, side in enumerate((rows, columns)):
        assert window[axis] == side or (window[axis] % multiple == 0 and window[axis] >= share * side - 1e-5)
        smaller = (window[axis] - 1) // multiple * multiple  # the next that a network could take
        if smaller >= 1:
            other = (smaller, columns) if axis == 0 else (rows, smaller)
            assert smaller < share * side or not holds(other)


# ---- slices that keep their shape


def cache_at_scale(size, *boxes, frames=(None, None, None)):
    """Three cases of three slices, all labelled: each box is (row, top, left, height, width)."""
    labels = np.zeros((9, *size), np.uint8)
    for n, (row, top, left, height, width) in enumerate(boxes):
        labels[row, top : top + height, left : left + width] = 1 + n % 3
    entries = [replace(case, frame=frame) for case, frame in zip(cases(3, 1, slices=3), frames, strict=True)]
    return replace(cache_of(entries), images=np.zeros((9, *size), np.uint16), labels=labels)


ALL = range(9)


@pytest.mark.parametrize(
    ("organ", "side"),
    [
        ((40, 40), 64),  # 60
        ((42, 42), 64),  # 63
        ((43, 20), 80),  # 64.5: the larger of height and width
        ((20, 43), 80),
        ((64, 64), 96),  # 96, which is a multiple already
        ((1, 1), 16),
    ],
    ids=str,
)
def test_the_window_is_half_as_large_again_as_the_organ_in_a_multiple_of_16(organ, side):
    window, look, said = organ_window(cache_at_scale((300, 200), (4, 7, 11, *organ)), ALL)
    assert (window, look) == ((side, side), True)
    assert said == (
        f"organs of labelled patients are up to {max(organ)} pixels wide: "
        f"the network sees {side}x{side} around them, found by a first look"
    )


def test_an_organ_is_what_all_slices_of_a_case_show_and_the_largest_one_counts():
    apart = (0, 10, 10, 30, 20), (2, 10, 40, 30, 20)  # 50 wide together
    assert organ_window(cache_at_scale((300, 300), *apart), ALL)[0] == (80, 80)
    other_case = (0, 10, 10, 30, 20), (3, 10, 240, 30, 24)  # far from each other, but 24 wide at most
    assert organ_window(cache_at_scale((300, 300), *other_case), ALL)[0] == (48, 48)
    assert organ_window(cache_at_scale((300, 300), *apart, *other_case), ALL)[0] == (80, 80)


def test_other_rows_do_not_count():
    cache = cache_at_scale((300, 300), (0, 10, 10, 20, 20), (1, 10, 10, 100, 100), (8, 0, 0, 120, 120))
    assert organ_window(cache, [0, 2, 3])[0] == (32, 32)


def test_rounding_in_the_last_bit_does_not_widen_the_window():
    """1.1 * 80 is 88, not 88.00000000000001."""
    assert organ_window(cache_at_scale((300, 300), (0, 0, 0, 80, 8)), ALL, margin=1.1, multiple=8)[0] == (88, 88)


@pytest.mark.parametrize(
    ("organ", "frames", "expected"),
    [
        (42, (None, None, None), (64, 64)),  # 64 * 64 = 4096, and 60 % of 100 * 104 are 6240
        (53, (None, None, None), (112, 112)),  # 80 * 80 = 6400: whole slices, in multiples of 16
        (30, (None, None, None), (48, 48)),
        (30, ((60, 60), (90, 90), (99, 99)), (112, 112)),  # 48 * 48 = 2304, and 60 % of 60 * 60 are 2160
        (30, ((64, 60), (10, 10), (10, 10)), (112, 112)),  # 2304 is exactly 60 % of 3840
        (30, ((65, 60), (10, 10), (10, 10)), (48, 48)),  # of the cases with an organ alone
    ],
)
def test_where_organs_fill_the_slices_the_network_sees_all_of_them(organ, frames, expected):
    window, look, said = organ_window(cache_at_scale((100, 104), (1, 20, 20, organ, organ), frames=frames), ALL)
    assert (window, look) == (expected, expected != (112, 112))
    if not look:
        assert (
            said
            == f"organs of labelled patients are up to {organ} pixels wide: the network sees whole slices, in 112x112"
        )


@pytest.mark.parametrize("rows", [(), (0, 1), ALL], ids=str)
def test_without_an_organ_the_network_sees_whole_slices(rows):
    found = organ_window(cache_at_scale((64, 81), *([(5, 1, 1, 9, 9)] if rows != ALL else [])), rows)
    assert found == ((64, 96), False, "the network sees whole slices, in 64x96")
