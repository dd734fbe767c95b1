from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.analysis.step_time.alignment import align
from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot, StepTimeSourceRow


def window_of(builder: RunBuilder, window_size: int = 10_000):
    return align(builder.snapshot(), window_size)


def test_the_window_is_the_last_steps_that_all_ranks_completed():
    """Rank 1 is two steps behind and lacks step 5; of the common steps the last three count."""
    window = window_of(RunBuilder().rank(0, range(1, 11)).rank(1, [1, 2, 3, 4, 6, 7, 8]), window_size=3)

    assert window.steps == (6, 7, 8)
    assert window.coverage.completed_step == 8
    assert window.coverage.latest_step == 10


def test_a_promised_rank_without_rows_blocks_nothing():
    """Of a world of four two ranks report: all four are expected, two are present."""
    window = window_of(RunBuilder(world_size=4).rank(0, range(1, 5)).rank(1, range(1, 5)))

    assert window.expected_ranks == (0, 1, 2, 3)
    assert (window.coverage.world_size, window.coverage.ranks_present, len(window.steps)) == (4, 2, 4)


def test_no_rows_give_an_empty_window():
    """Nothing was measured: no steps, no metrics, no ranks."""
    window = align(StepTimeRepositorySnapshot(), 100)

    assert (window.steps, window.metrics, window.ranks) == ((), {}, ())


def test_of_two_rows_for_a_step_the_later_counts():
    """The row with the larger source id wins, wherever it stands."""
    rows = [
        StepTimeSourceRow(2, 0, 1, {"input_wait": (7.0, None), "traced": (93.0, None)}),
        StepTimeSourceRow(1, 0, 1, {"input_wait": (1.0, None), "traced": (9.0, None)}),
    ]

    window = align(StepTimeRepositorySnapshot(rows=tuple(rows), global_ranks=(0,)), 100)

    assert window.facts(0).average.step_time_ms == 100.0


def test_warm_up_steps_stay_out_when_others_are_enough():
    """Of five steps the first two compiled; three count and two are said to be left out."""
    window = window_of(RunBuilder().rank(0, range(1, 6), warmup=2))

    assert (window.steps, window.coverage.warmup_left_out) == ((3, 4, 5), 2)


def test_warm_up_steps_count_when_there_is_nothing_else():
    """Two steps, one of them warm-up: one other is too few, so both count."""
    window = window_of(RunBuilder().rank(0, range(1, 3), warmup=1))

    assert (window.steps, window.coverage.warmup_left_out) == ((1, 2), 0)


def test_warm_up_before_the_window_is_not_left_out_of_it():
    """A window of two at the end of a run has no warm-up to leave out."""
    window = window_of(RunBuilder().rank(0, range(1, 6), warmup=1), window_size=2)

    assert (window.steps, window.coverage.warmup_left_out) == ((4, 5), 0)


def test_warm_up_in_the_middle_is_not_expected():
    """A recompilation at step 3 is left out, and no rank is said to lack it."""
    builder = RunBuilder().rank(0, [1, 2]).rank(0, [3], warmup=1).rank(0, [4, 5])

    coverage = window_of(builder).coverage

    assert (coverage.expected_steps, coverage.steps_used, coverage.warmup_left_out) == (4, 4, 1)


def test_a_step_that_warmed_up_on_any_rank_stays_out():
    """The others waited for it."""
    window = window_of(RunBuilder().rank(0, range(1, 6)).rank(1, range(1, 6), warmup=1))

    assert window.steps == (2, 3, 4, 5)


@pytest.mark.parametrize(("lost", "clock", "steps"), [(5, "gpu", 95), (6, "cpu", 100)])
def test_up_to_one_step_in_twenty_may_lose_its_device_time(lost, clock, steps):
    """5 of 100 are left out, with 6 the whole window turns to the CPU clock."""
    builder = RunBuilder(gpu=True).rank(0, range(1, 101)).rank(1, range(1, 101))
    for number in range(10, 10 + lost):
        builder.lose_gpu(1, number, "backward")

    window = window_of(builder)

    assert (window.clock, len(window.steps), window.coverage.gpu_pairs_lost) == (clock, steps, 100 - steps)


@pytest.mark.parametrize("phase", ["traced", "input_wait"])
def test_the_gpu_clock_needs_traced_and_input_wait_everywhere(phase):
    """A rank that never timed one of them on the device puts all ranks on the CPU clock."""
    builder = RunBuilder(gpu=True).rank(0, range(1, 5)).rank(1, range(1, 5))
    for number in range(1, 5):
        builder.lose_gpu(1, number, phase)

    window = window_of(builder)

    assert (window.clock, window.facts(0).average.forward_ms) == ("cpu", 60.0)
    assert window.facts(0).average.step_time_gpu_ms == 100.0
    assert window.facts(1).average.step_time_gpu_ms is None


def test_residual_is_clamped_step_by_step():
    """Steps with residuals of 20 and -20 average 10, not 0."""

    def uneven(number, values):
        return {"traced": 110.0 if number % 2 else 70.0}

    window = window_of(RunBuilder().rank(0, range(1, 5), change=uneven))

    assert window.facts(0).average.residual_ms == 10.0


def test_compute_needs_all_three_phases():
    """Without an optimizer there is neither compute nor residual."""
    average = window_of(RunBuilder().rank(0, range(1, 5), optimizer=None)).facts(0).average

    assert (average.compute_ms, average.residual_ms, average.step_time_ms) == (None, None, 100.0)


def test_step_time_needs_input_wait():
    """A step whose input was not seen has traced time only."""
    average = window_of(RunBuilder().rank(0, range(1, 5), input_wait=None)).facts(0).average

    assert (average.step_time_ms, average.traced_step_time_ms) == (None, 95.0)


def test_the_worst_value_has_its_own_rank_and_ties_go_to_the_lower():
    """Forward is 40 on ranks 1 and 2 and 30 on rank 0."""
    builder = RunBuilder().rank(0, range(1, 5)).rank(1, range(1, 5), forward=40.0).rank(2, range(1, 5), forward=40.0)
    metric = window_of(builder).metrics["forward_ms"]

    assert (metric.worst_ms, metric.worst_rank) == (40.0, 1)


def test_the_representative_is_a_real_rank_near_the_median():
    """Of 10, 20, 40 and 80 the median is 30; 20 and 40 are equally near, the lower value is taken."""
    builder = RunBuilder()
    for rank, forward in enumerate([80.0, 40.0, 20.0, 10.0]):
        builder.rank(rank, range(1, 5), forward=forward)
    metric = window_of(builder).metrics["forward_ms"]

    assert (metric.median_ms, metric.representative_ms, metric.representative_rank) == (30.0, 20.0, 2)
    assert metric.skew == pytest.approx((80 - 30) / 30)


@pytest.mark.parametrize(("values", "skew"), [((0.0, 0.0), 0.0), ((0.0, 0.0, 9.0), None)])
def test_skew_over_a_median_of_zero(values, skew):
    """It is 0 when nothing differs and unknown when something does."""
    builder = RunBuilder()
    for rank, h2d in enumerate(values):
        builder.rank(rank, range(1, 5), h2d=h2d)

    assert window_of(builder).metrics["h2d_ms"].skew == skew


def test_series_are_median_and_worst_over_ranks_on_each_step():
    """Two ranks with forwards of 10 and 30."""
    builder = RunBuilder().rank(0, range(1, 3), forward=10.0).rank(1, range(1, 3), forward=30.0)
    metric = window_of(builder).metrics["forward_ms"]

    assert metric.median_series_ms == (20.0, 20.0)
    assert metric.worst_series_ms == (30.0, 30.0)


def test_a_share_carries_its_interval():
    """Input wait alternates between 0 and 20 of 100 ms: a tenth, not known to the last digit, and always the same."""

    def alternate(number, values):
        wait = 20.0 if number % 3 == 0 else 5.0
        return {"input_wait": wait, "traced": 100.0 - wait}

    builder = RunBuilder().rank(0, range(1, 100), change=alternate)
    share = window_of(builder).shares["input_wait_ms"]

    assert share.mean == pytest.approx(0.10)
    assert share.low < 0.10 < share.high < 0.15
    assert share == window_of(builder).shares["input_wait_ms"]


def test_a_constant_share_has_an_interval_of_no_width():
    """Every step is the same, so there is nothing to be uncertain about."""
    share = window_of(RunBuilder().rank(0, range(1, 25))).shares["forward_ms"]

    assert (share.low, share.high) == pytest.approx((0.3, 0.3))


def test_the_age_of_a_silent_rank_counts_in_steps_too():
    """Steps of 10 s: a rank 101 steps behind is silent after 20 of them, not after 30 s."""
    builder = RunBuilder().rank(0, range(1, 301), traced=9995.0).rank(1, range(1, 200), traced=9995.0)
    snapshot = builder.snapshot()
    ends = {rank: progress.last_end_ns for rank, progress in snapshot.progress.items()}
    caught_up = {
        rank: replace(progress, last_end_ns=ends[0] - rank * 150 * 10**9)
        for rank, progress in snapshot.progress.items()
    }

    assert [rank.global_rank for rank in align(snapshot, 100).coverage.silent] == [1]
    assert align(replace(snapshot, progress=caught_up), 100).coverage.silent == ()
