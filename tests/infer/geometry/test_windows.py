"""Windows see the whole box, lie inside the frame where they can, and blend into one canvas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_infer.geometry.windows import Box, blending, cover, starts


@pytest.mark.parametrize(
    ("box", "window", "frame", "wanted"),
    [
        (Box(40, 60, 80, 90), (96, 96), (192, 192), [(12, 27)]),  # around its middle
        (Box(0, 0, 20, 20), (96, 96), (192, 192), [(0, 0)]),  # inside the frame
        (Box(170, 180, 192, 192), (96, 96), (192, 192), [(96, 96)]),
        (Box(0, 0, 20, 150), (96, 96), (80, 192), [(-8, 0), (-8, 54)]),  # a small frame in the middle; a wide box
        (Box(0, 0, 5, 5), (9, 8), (6, 7), [(-1, 0)]),  # odd differences: one zero more behind than before
        (Box(0, 0, 96, 96), (96, 96), (96, 96), [(0, 0)]),
        (Box(-30, 190, 5, 400), (96, 96), (192, 192), [(0, 96)]),  # partly outside
        (Box(500, -20, 600, -10), (96, 96), (192, 192), [(96, 0)]),  # wholly outside
        (Box(0, 0, 4, 4), (1, 2), (4, 4), [(r, c) for r in range(4) for c in range(3)]),
    ],
)
def test_where_windows_lie(box, window, frame, wanted):
    assert cover(box, window, frame) == wanted


def test_the_centre_is_that_of_the_frame():
    for frame in ((192, 191), (97, 96), (50, 300)):
        ((top, left),) = cover(Box.centre(frame), (96, 96), frame)
        assert (top, left) == ((frame[0] - 96) // 2 if frame[0] > 96 else -((96 - frame[0]) // 2), (frame[1] - 96) // 2)


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 400), st.integers(1, 130), st.data())
def test_a_box_is_seen_whole_by_windows_that_overlap(frame, window, data):
    low = data.draw(st.integers(0, frame - 1))
    high = data.draw(st.integers(low + 1, frame))
    found = starts(low, high, window, frame)
    assert found == sorted(set(found))
    seen = np.zeros(frame, int)
    for start in found:
        seen[max(0, start) : start + window] += 1
    assert seen[low:high].all()
    if frame <= window:
        assert len(found) == 1
        assert (seen == 1).all()
    else:
        assert found[0] >= 0
        assert found[-1] + window <= frame
    if high - low <= window:
        assert len(found) == 1
    else:
        assert (found[0], found[-1] + window) == (low, high)
        gaps = np.diff(found)
        assert gaps.max() - gaps.min() <= 1
        if window > 1:
            assert window - gaps.max() >= window / 4


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.integers(1, 100))
def test_blending_weights_add_up_to_one_everywhere(frame, window):
    found = starts(0, frame, window, frame)
    weights = blending(found, window)
    assert weights.min() > 0
    total = np.zeros(found[-1] + window - found[0])
    for start, ramp in zip(found, weights, strict=True):
        total[start - found[0] : start - found[0] + window] += ramp
    np.testing.assert_allclose(total, 1, atol=1e-6)
    if len(found) == 1:
        assert (weights == 1).all()  # not a bit of the logits is changed
