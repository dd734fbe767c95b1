import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.energy import S, Scene, ints, power_of, ticks_of

from stepmeter.analysis.energy.attribution import DeviceReadings, estimate
from stepmeter.analysis.energy.model import METHODS
from stepmeter.analysis.energy.sharing import Windows, condition, share_out, union


def estimates(readings, *windows, busy=()):
    start, end = (ints(*(round(w[side] * S) for w in windows)) for side in (0, 1))
    return estimate(readings, start, end, readings.sharing(*busy))


def figures(found):
    return [
        (METHODS[int(method)], value, lower, upper)
        for method, value, lower, upper in zip(
            found.method, *(column.tolist() for column in (found.value_mj, found.lower_mj, found.upper_mj)), strict=True
        )
    ]


def test_windows_between_ticks_are_exact():
    """A window from tick to tick has the counter's difference, within what floored readings lack."""
    readings = DeviceReadings("gpu", ticks_of((0, 0), (1, 100), (2, 300), (3, 400)), None, 200_000)

    assert figures(estimates(readings, (0, 2), (1, 3))) == [
        ("counter_exact", 300_000, 299_998, 300_002),
        ("counter_exact", 300_000, 299_998, 300_002),
    ]


def test_half_a_tick_lies_between_its_bounds():
    """Half of a tick of 100 J at 50 to 150 W may hold 25 to 75 J, and an even share is 50 J."""
    readings = DeviceReadings("gpu", ticks_of((0, 0), (1, 100), (2, 200)), power_of((0, 100), (2, 100)), 136_364)
    (method, value, lower, upper) = figures(estimates(readings, (0.5, 1)))[0]

    assert (method, value) == ("counter_interpolated", 50_000)
    assert (lower, upper) == pytest.approx((25_000, 75_000), abs=3)


def test_unknown_moments_widen_the_bounds():
    """A tick whose moment is known within 2 ms widens a bound by the greatest power times 4 ms."""
    counter = ticks_of((0, 0), (1, 100), (2, 200))
    loose = ticks_of((0, 0), (1, 100), (2, 200), gap_ns=2_000_000)
    bounds = [figures(estimates(DeviceReadings("gpu", c, None, 100_000), (0.25, 0.75)))[0] for c in (counter, loose)]

    assert bounds[1][3] - bounds[0][3] == pytest.approx(110_000 * 0.004, rel=0.05)


def test_a_reset_closes_the_interval():
    """Where the counter went backwards the energy is unknown; windows elsewhere keep theirs."""
    readings = DeviceReadings("gpu", ticks_of((0, 500), (1, 600), (2, 10), (3, 110)), None, 200_000)

    assert figures(estimates(readings, (0, 1), (0.5, 1.5), (2, 3), (0, 3))) == [
        ("counter_exact", 100_000, 99_998, 100_002),
        ("unavailable", -1, -1, -1),
        ("counter_exact", 100_000, 99_998, 100_002),
        ("unavailable", -1, -1, -1),
    ]


def test_power_stands_in_for_a_counter():
    """Without a counter power is integrated, between the whole segments inside and those touched."""
    readings = DeviceReadings("gpu", None, power_of(*((t, 100) for t in range(5))), 200_000)

    assert figures(estimates(readings, (0.5, 2.5))) == [("power_integral", 200_000, 100_000, 300_001)]


def test_what_was_not_read_is_unavailable():
    """A window before the first reading or after the last has no figure, and never 0."""
    readings = DeviceReadings("gpu", ticks_of((1, 0), (2, 100)), None)

    assert [f[:2] for f in figures(estimates(readings, (0, 1.5), (1.5, 2.5)))] == [("unavailable", -1)] * 2


def test_busy_and_idle_power_are_told_apart():
    """Steps of 500 W amid idle time of 100 W: the fit finds both, and a short step gets 500 W and not the mean."""
    busy = Windows(
        ints(*(round((n + n % 7 / 10) * S) for n in range(20))),
        ints(*(round((n + n % 7 / 10 + 0.3) * S) for n in range(20))),
    )
    edges = ints(*(n * S for n in range(21)))
    energy_j = (np.arange(21) * 100 + busy.time_before(edges) / S * 400).tolist()
    readings = DeviceReadings("gpu", ticks_of(*zip(range(21), energy_j, strict=True)), None, 600_000)
    # every tick holds 0.3 s of work but the one that a step leaves
    found = estimates(readings, (1.1, 1.4), (3.3, 3.6), busy=[busy])

    assert [(m, v) for m, v, _, _ in figures(found)] == [("counter_interpolated", pytest.approx(66_000, rel=0.01))] * 2

    uneven = Windows(busy.start_ns, busy.start_ns + np.arange(20) * S // 40)
    energy_j = (np.arange(21) * 100 + uneven.time_before(edges) / S * 400).tolist()
    readings = DeviceReadings("gpu", ticks_of(*zip(range(21), energy_j, strict=True)), None, 600_000)
    start, end = uneven.start_ns[8:9] / S, uneven.end_ns[8:9] / S
    found = estimates(readings, (start[0], end[0]), busy=[uneven])

    assert figures(found)[0][:2] == ("counter_fit", pytest.approx(0.2 * 500_000, rel=0.01))


def test_a_locked_step_period_is_not_fitted():
    """When every tick holds the same mix of busy and idle time no fit is used."""
    busy = Windows(ints(*(n * S for n in range(30))), ints(*(n * S + S // 2 for n in range(30))))
    counter = ticks_of(*((n, 300 * n + n % 3) for n in range(31)))

    assert not share_out(counter, [busy], 0, 700_000).is_fitted.any()


def test_work_that_was_seldom_seen_draws_about_as_much_as_all():
    """A tool in two ticks of a board that swings by itself gets no power from how these two happened to be."""
    watts = itertools.cycle([300, 300, 300, 120, 120])
    joules = [0, *itertools.accumulate(next(watts) / 10 for _ in range(50))]
    counter = ticks_of(*((tick / 10, joule) for tick, joule in enumerate(joules)), gap_ns=0)
    calls = Windows(ints(round(0.5 * S), round(2.05 * S)), ints(round(1.93 * S), round(4.5 * S)))
    tool = Windows(ints(round(1.93 * S)), ints(round(2.05 * S)))
    sharing = share_out(counter, [calls, tool], 60_000, 700_000)
    start_mj, end_mj = sharing.until(ints(round(1.93 * S), round(2.05 * S)))

    assert 60 < (end_mj - start_mj) / 120 < 400
    assert condition(np.full((2, 30), 5e8)) > 1e9


def test_union_merges_what_overlaps():
    """Windows that overlap or touch become one, whatever their order."""
    merged = union(ints(5, 0, 2, 20), ints(9, 3, 5, 30))

    assert (merged.start_ns.tolist(), merged.end_ns.tolist()) == ([0, 20], [9, 30])
    assert merged.time_before(ints(0, 4, 15, 25, 99)).tolist() == [0, 4, 9, 14, 19]


@pytest.mark.parametrize("period_ms", [10, 20, 100])
@pytest.mark.parametrize("step_ms", [5, 20, 50, 80, 150, 500, 2000])
def test_truth_lies_within_the_bounds(step_ms, period_ms):
    """Of every step the scripted energy lies within its bounds, and the sum of values is within 1 % of the truth."""
    scene = Scene(step_ms=step_ms, period_ms=period_ms, steps=max(20, min(400, 20_000 // step_ms)))
    found = estimate(scene.readings, *scene.windows, scene.readings.sharing(*scene.loads))
    truth = scene.truth_mj

    assert set(found.method) <= {0, 1, 2}
    assert np.all(found.lower_mj <= truth)
    assert np.all(truth <= found.upper_mj)
    assert np.all((found.lower_mj <= found.value_mj) & (found.value_mj <= found.upper_mj))
    assert abs(found.value_mj.sum() / truth.sum() - 1) < 0.01


@given(
    st.lists(st.integers(0, 3 * S), min_size=2, max_size=40),
    st.lists(st.integers(0, 70_000), min_size=3, max_size=40),
    st.integers(0, 5_000_000),
)
@settings(max_examples=150, deadline=None)
def test_steps_and_gaps_are_the_counter(edges, rises, gap_ns):
    """Windows that tile the time between two ticks add up to the counter to the millijoule."""
    counter = ticks_of(*((t / 10, e / 1000) for t, e in enumerate(np.cumsum(rises).tolist())), gap_ns=gap_ns)
    last = int(counter.tick_ns[-1])
    tiles = ints(0, *sorted(e % (last + 1) for e in edges), last)
    readings = DeviceReadings("gpu", counter, None, 700_000)
    busy = union(tiles[:-1:2], tiles[1::2])
    found = estimate(readings, tiles[:-1], tiles[1:], readings.sharing(busy))

    assert found.value_mj.sum() == counter.energy_mj[-1] - counter.energy_mj[0]
    assert (found.value_mj >= 0).all()
