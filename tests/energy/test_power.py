import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.energy import S, ints, power_of

from stepmeter.analysis.energy.exact import DOUBLED_PER_MJ, trapezoids
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.errors import CheckFailedError


def steady(seconds=5, watts=100):
    return power_of(*((t, watts) for t in range(seconds)))


def strict_mj(timeline, *windows):
    start, end = (ints(*(round(w[side] * S) for w in windows)) for side in (0, 1))
    return timeline.whole_segments(start, end).floored_mj().tolist()


def test_a_segment_inside_a_window_is_its():
    """100 W for the second between two samples that lie inside a window are 100 J of it."""
    assert strict_mj(steady(), (0, 1), (1, 3)) == [100_000, 200_000]


def test_a_straddling_segment_is_nobodys():
    """A segment that crosses an edge of a window is left for the remainder."""
    timeline = steady()

    assert strict_mj(timeline, (0.5, 1.5)) == [0]
    assert timeline.split(ints(S // 2), ints(3 * S // 2))[1] == 400_000 * DOUBLED_PER_MJ


def test_power_between_samples_is_a_ramp():
    """From 0 W over 100 W to 200 W in two seconds are 200 J."""
    assert power_of((0, 0), (1, 100), (2, 200)).total() == 200_000 * DOUBLED_PER_MJ


def test_flooring_happens_once():
    """Three steps of a third of a second are floored one by one; the whole keeps the millijoule they lose."""
    third = 333_333_333
    timeline = PowerTimeline("gpu", ints(*(third * i for i in range(4))), ints(100_001, 100_002, 100_003, 100_004))
    steps = timeline.whole_segments(ints(0, third, 2 * third), ints(third, 2 * third, 3 * third)).floored_mj()

    assert steps.tolist() == [33333, 33334, 33334]
    assert timeline.total() // DOUBLED_PER_MJ == 100_002


def test_sums_stay_exact_beyond_an_int64():
    """A month at 700 W in 10 s samples, and one sample a week late, are what Python's integers say."""
    times = [*range(0, 30 * 86_400 * S, 10 * S), 37 * 86_400 * S]
    powers = [700_000 + i % 7 for i in range(len(times))]
    timeline = PowerTimeline("gpu", ints(*times), ints(*powers))
    exact = sum((p + q) * (u - t) for p, q, t, u in zip(powers, powers[1:], times, times[1:], strict=False))

    assert timeline.total() == exact
    assert timeline.whole_segments(ints(0), ints(times[-1])).floored_mj().tolist() == [exact // DOUBLED_PER_MJ]


def test_overlapping_windows_fail_the_check():
    """Energy counted twice is found out, since the remainder is summed on its own."""
    with pytest.raises(CheckFailedError, match=r"differ from the whole by \+100000"):
        steady().split(ints(0, S), ints(2 * S, 3 * S))


@st.composite
def scenes(draw):
    """Samples at any distance, and disjoint windows that touch or not."""
    steps = draw(st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
    times = [0, *np.cumsum(steps).tolist()]
    powers = draw(st.lists(st.integers(0, 2**31 - 1), min_size=len(times), max_size=len(times)))
    inside = st.one_of(st.integers(0, times[-1]), st.sampled_from(times))
    edges = sorted(draw(st.lists(inside, min_size=2, max_size=20)))
    touching = draw(st.booleans())
    pairs = list(itertools.pairwise(edges)) if touching else list(zip(edges[::2], edges[1::2], strict=False))
    return times, powers, pairs


@given(scenes())
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_or_doubled(scene):
    """Windows and remainder are the whole, to the last doubled milliwatt-nanosecond, and each is what integers say."""
    times, powers, pairs = scene
    timeline = PowerTimeline("gpu", ints(*times), ints(*powers))
    segments = [(p + q) * (u - t) for p, q, t, u in zip(powers, powers[1:], times, times[1:], strict=False)]
    windows, rest = timeline.split(ints(*(a for a, _ in pairs)), ints(*(b for _, b in pairs)))
    sums = windows.integers()
    expected = [
        sum(e for e, t, u in zip(segments, times, times[1:], strict=False) if t >= a and u <= b) for a, b in pairs
    ]

    assert sums == expected
    assert sum(sums) + rest == sum(segments) == timeline.total()


def test_limbs_stay_small():
    """The low limb of a segment is below 2³¹, so that a sum of billions of them fits."""
    found = trapezoids(ints(0, 2**40), ints(2**31 - 1, 2**31 - 1))

    assert 0 <= int(found.low[0]) < 2**31
    assert found.integers() == [2 * (2**31 - 1) * 2**40]
